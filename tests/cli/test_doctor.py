"""`ragguard doctor`, as a user calls it: against servers in another thread, since it runs a loop of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
from functools import partial
from pathlib import Path

import pytest
from support.commands import ragguard
from support.fake_model import FakeModel
from support.misbehaving_server import Reply, serving

from ragguard.cli.doctor import cost_of_a_hop
from ragguard.runtime.faults import NOTICES

doctor = partial(ragguard, "doctor")


def test_vllm_server_is_ready_exactly():
    with serving(FakeModel().handle) as url:
        result = doctor(url, "--speed", code=0)
    for part in (
        url,
        "(vllm)",
        "fake",
        "default/1",
        "exact: the first token",
        "80.0%",
        "64 prompts",
        "a second",
    ):
        assert part in result.stdout
    assert re.search(
        r"^ready: exact; a run of one hop with five passages takes \d+ requests, [\d,]+ tokens, about [\d.]+ s$",
        result.stdout.splitlines()[-1],
    )


def test_server_of_one_sample_a_request_is_measured_with_few_requests_and_told_what_a_run_costs():
    model, asked = FakeModel(face="openai", top=0, many="refused"), []

    def handle(request):
        asked.append(request.path)
        return model.handle(request)

    with serving(handle) as url:
        result = doctor(url, code=0)
    assert len(asked) < 150
    assert re.search(r"^ready: estimated; .* takes 961 requests, .*vLLM$", result.stdout.splitlines()[-1]), (
        result.stdout
    )


def test_part_that_fails_loses_no_other_part():
    model = FakeModel()

    def handle(request):
        fails = request.path == "/v1/completions" and request.json.get("n") == 10
        return Reply({"error": {"message": "no samples today"}}, 500) if fails else model.handle(request)

    with serving(handle) as url:
        result = doctor(url, code=1)
    for part in ("samples     failed: Engine", "no samples today", "exact: the first token", "a second"):
        assert part in result.stdout
    assert result.stdout.splitlines()[-1] == "not ready: fix what failed above"


def test_lines_come_before_the_slow_parts_are_done():
    model, before = FakeModel(), []

    def handle(request):
        if request.path == "/v1/completions" and request.json.get("n") == 10:
            before.extend(told)
        return model.handle(request)

    told = []
    with serving(handle) as url, pytest.MonkeyPatch.context() as patch:
        patch.setattr("ragguard.cli.doctor.say", lambda text, error=False: told.append(text))
        assert doctor(url).exit_code == 0
    assert [line.split()[0] for line in before[:2]] == ["engine", "model"]
    assert any(line.startswith("labels") for line in before)


def test_prompts_that_are_named_are_asked_and_unknown_ones_are_a_wrong_option():
    with serving(FakeModel().handle) as url:
        assert "prompts nano/" in doctor(url, "--prompts", "nano").stdout
        assert doctor(url, "--prompts", "no-such-set").exit_code == 2


def test_as_json():
    with serving(FakeModel(exact=False, shown=1).handle) as url:
        result = doctor(url, "--json")
    found = json.loads(result.stdout)
    assert found["model"] == "fake"
    assert found["fit"] is True
    assert found["label_mass"] == pytest.approx(1.0)
    assert found["mass_is_bound"] is True
    assert found["many_ms"] > 0
    assert any("newer vLLM" in note for note in found["notes"])


def test_a_model_that_chats_instead_is_not_ready(monkeypatch):
    monkeypatch.setattr("support.fake_model.ANSWERS", {"A": 0.1, "Sure": 0.85, "B": 0.05})
    with serving(FakeModel().handle) as url:
        result = doctor(url, code=1)
    assert "not ready: the model puts too little" in result.stdout.splitlines()[-1]
    assert "instruction-tuned" in result.stdout


@pytest.mark.parametrize("more", [(), ("--exam",)])
def test_a_server_that_is_not_there_is_not_ready_and_nobody_is_sent_to_the_doctor_again(more, caplog):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        result = doctor(url, *more)
    assert "ragguard doctor" not in caplog.text
    assert result.exit_code == 1
    assert "EngineUnreachable" in result.stderr
    assert url in result.stderr
    assert "check the address" in result.stderr


def test_a_model_that_is_not_there_is_not_ready():
    with serving(FakeModel(models=("one", "two")).handle) as url:
        result = doctor(f"{url}#three", code=1)
    assert "it has: one, two" in result.stderr


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_model_name_is_no_command_to_the_terminal(more):
    with serving(FakeModel(models=("fa\x1b[2J\x9b31m\u202eke",)).handle) as url:
        result = doctor(url, *more, code=0)
    assert not set(result.output) & set("\x1b\x9b\u202e")
    assert "ke" in result.stdout


def test_nano_is_ready(caplog):
    NOTICES.forget()
    result = doctor("nano", code=0)
    ours = [record for record in caplog.records if record.name.startswith("ragguard")]
    assert not ours, "it is asked in words that it knows"
    assert "(nano)" in result.stdout
    assert "exact" in result.stdout


@pytest.mark.vllm
def test_a_real_vllm_server_is_well(vllm_server):
    result = doctor(vllm_server.url, code=0)
    assert "prompts nano/" in result.stdout
    assert "exact: the first token" in result.stdout


def test_header_before_the_command_goes_to_the_server_and_a_wait_that_it_asks_for_is_kept(monkeypatch):
    monkeypatch.setenv("RAGGUARD_HEADERS", "X-Team: search")
    model, busy = FakeModel(face="openai"), [2]

    def handle(request):
        if (request.headers.get("api-key"), request.headers.get("x-team")) != ("gateway-key", "search"):
            return Reply({"error": {"message": "who are you?"}}, 401)
        busy[0] -= 1
        return Reply({}, 429, {"retry-after": "0.01"}) if busy[0] >= 0 else model.handle(request)

    with serving(handle) as url:
        result = ragguard("--header", "api-key: gateway-key", "doctor", url, code=0)
    assert "gateway-key" not in result.output
    assert os.environ["RAGGUARD_HEADERS"] == "X-Team: search"  # as before the command


def test_a_server_that_asks_to_wait_for_long_is_said_at_once():
    asked = []

    def handle(request):
        asked.append(request.path)
        return Reply({"error": {"message": "Rate limit reached"}}, 429, {"retry-after": "20"})

    with serving(handle) as url:
        result = doctor(url, code=1)
    assert "Rate limit reached" in result.output
    assert "429" in result.output
    assert len(asked) < 5, "none of them is waited for"


@pytest.mark.parametrize(
    "model", [FakeModel(), FakeModel(face="openai"), FakeModel(face="openai", top=0, many="refused")]
)
def test_the_cost_of_a_hop_takes_as_many_requests_as_the_page_says(model):
    asked = []

    def handle(request):
        asked.append(request.path)
        return model.handle(request)

    with serving(handle) as url:
        asyncio.run(cost_of_a_hop(url))
    page = " ".join((Path(__file__).parents[2] / "docs/how-to/init.md").read_text().split())
    least, most = map(int, re.search(r"takes (\d+) to (\d+) short requests", page).groups())
    assert least <= len(asked) <= most


def test_examination_shows_each_figure_keeps_the_record_and_ends_with_1_where_something_failed(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("RAGGUARD_EXAMS", str(tmp_path))
    with serving(FakeModel().handle) as url:
        result = doctor(url, "--exam", code=1)
    assert re.search(r"0\.50  relevance by label: .* \(at least 0\.75\)  FAILED", result.stdout), (
        result.stdout
    )
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_nano_is_examined_elsewhere():
    result = doctor("nano", "--exam", code=1)
    assert "make evaluate-nano" in result.output
