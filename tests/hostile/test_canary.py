"""A key or a password that a server echoes in every form it can think of stands in no output of the package."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from base64 import b64decode, b64encode
from itertools import count
from urllib.parse import quote

import pytest
from support.commands import ragguard
from support.misbehaving_server import Reply, serving
from support.traced import kept_spans

from ragguard import DistractorGuard, Passage, RagGuard, connect
from ragguard.records import RetrievalStep, Run
from ragguard.storage.files.runfile import write_runs
from ragguard.telemetry.back_ends import PhoenixSink

KEY = "cnry/K3y+\"Z'%41\\q_0123456789"
USER, PASSWORD = "cnry-Us3r-name", "cnry?P4ss/w#rd@Z é"
FORMS = [
    str, repr, json.dumps, lambda text: quote(text, safe=""), quote, lambda text: f"{{'Authorization': {text!r}}}",
    lambda text: b64encode(text.encode()).decode(), lambda text: text[:8], lambda text: text[:13] + "...",
]  # fmt: skip


class Echo:
    """Refuses everything, and says with which key it was asked."""

    def __init__(self):
        self._number = count()
        self.asked = 0

    def handle(self, request):
        header = request.headers.get("authorization", "")
        kind, _, token = header.partition(" ")
        shown = [header, token, b64decode(token).decode() if kind == "Basic" else token]
        self.asked += bool(header)
        number = next(self._number)
        form = FORMS[number // 3 % len(FORMS)]
        said = "; ".join(form(one) for one in shown)
        replies = (
            Reply({"error": {"message": f"{'x' * (number % 200)} bad key {said}"}}, 401),
            Reply(f"{'y' * (number % 80)}{said}", 400),
            Reply(f"{said} is no JSON"),
        )
        return replies[number % 3]


def leaks(text):
    """Every trace of a secret in a text: the beginnings suffice."""
    secrets = (KEY, PASSWORD, USER, f"{USER}:{PASSWORD}")
    heads = {form(secret).strip("'\"")[:8] for secret in secrets for form in FORMS} - {"{'Author"}
    return sorted(head for head in heads if head in text)


async def sampled(url, prompt):
    engine = connect(url)
    try:
        await engine.sample([prompt])
    finally:
        await engine.aclose()


def a_run(number):
    passages = [Passage("Nordvik is based in Oslo.", "p1")]
    return Run(
        f"r{number}", f"who founded firm {number}?",
        steps=[RetrievalStep(query="firm", passages=passages, candidates=passages)],
    )  # fmt: skip


@pytest.mark.parametrize("how", ["key", "userinfo"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_output_holds_a_secret(tmp_path, monkeypatch, caplog, how):
    caplog.set_level(logging.DEBUG)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    echo, (spans, provider) = Echo(), kept_spans()
    with serving(echo.handle) as url:
        if how == "key":
            monkeypatch.setenv("RAGGUARD_API_KEY", KEY + "\n")
            monkeypatch.setenv("PHOENIX_API_KEY", KEY + "\r\n")
        else:
            monkeypatch.delenv("RAGGUARD_API_KEY", raising=False)
            url = url.replace("://", f"://{quote(USER, safe='')}:{quote(PASSWORD, safe='')}@")
        outputs = outputs_of(url, tmp_path, provider)
    gc.collect()  # the guards' connections, whose loops have ended, are this test's and nobody else's
    assert echo.asked > 3 * len(FORMS)
    outputs["log"] = caplog.text
    for file in (file for file in tmp_path.iterdir() if file.stat().st_size):
        outputs[file.name] = file.read_bytes().decode("utf-8", "replace")
    outputs["spans"] = "".join(span.to_json() for span in spans.get_finished_spans())
    assert all(outputs.values()), [name for name, text in outputs.items() if not text]
    assert {name: leaks(text) for name, text in outputs.items() if leaks(text)} == {}


def outputs_of(url, folder, provider):
    """What ragguard says, wherever it says anything, of a server that refuses every request."""
    phoenix = PhoenixSink(url.removesuffix("/v1"))
    rg = RagGuard(
        url, store=folder / "s.db", scorers=("utility",), sinks=[phoenix], tracer_provider=provider,
        capture_content=True,
    )  # fmt: skip
    for number in range(3 * len(FORMS)):
        with rg.run(f"who founded firm {number}?") as run:
            run.retrieved("firm", [Passage("Nordvik is based in Oslo.", "p1")])
            run.failed("firm", RuntimeError(f"401 for {url}"))
    report = rg.flush(timeout=60)
    runs = list(rg.runs())
    outputs = {
        "report": f"{report} {report!r}",
        "records": repr([(run, rg.failures(run.id)) for run in runs]),
        "reprs": f"{rg.engine!r} {rg!r} {phoenix!r} {vars(rg.engine)!r}",
    }
    guards = [DistractorGuard(connect(url), budget_ms=5000) for _ in FORMS]
    decisions = [guard.prune("firm", ["one passage", "another"]) for guard in guards]
    outputs["decisions"] = repr(decisions)
    for guard in guards:
        asyncio.run(guard.engine.aclose())
    errors = []
    for number in range(3 * len(FORMS)):
        try:
            asyncio.run(sampled(url, f"question {number}"))
        except Exception as error:  # noqa: BLE001 - whatever comes is looked at
            errors.append(error)
    seen = []
    for error in errors:
        while error is not None:
            seen.append(f"{error} {error!r}")
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    outputs["errors"] = "\n".join(seen)
    rg.close()
    write_runs([a_run(number) for number in range(len(FORMS))], folder / "runs.jsonl")
    commands = {
        "doctor": ["doctor", url],
        "score": ["score", folder / "runs.jsonl", "--engine", url, "--store", folder / "cli.db"],
        "terminal": ["report", folder / "s.db"],
        "one run": ["report", folder / "s.db", "--run", runs[0].id],
        "page": ["report", folder / "s.db", "--html", folder / "page.html"],
    }
    for name, arguments in commands.items():
        result = ragguard(*arguments)
        outputs[name] = result.output + repr(result.exception)
    return outputs


@pytest.mark.parametrize("forwards", [False, True])
def test_a_key_in_the_query_of_otlp_is_in_no_report_and_no_log(caplog, forwards):
    address = "http://127.0.0.1:9/?token=query-key-4711"
    scoring = (
        {"engine": None, "capture_content": True} if forwards else {"engine": "nano", "scorers": ["utility"]}
    )
    with caplog.at_level(logging.DEBUG):
        rg = RagGuard(store=None, otlp=address, **scoring)
        with rg.run("who?") as run:
            run.retrieved("who", ["a"])
        reports = [rg.flush(3), rg.close(1)]
    shown = f"{reports} {[*map(str, reports)]} {rg!r} {caplog.text}"
    assert "127.0.0.1:9" in shown
    assert "query-key-4711" not in shown
