"""The endpoints: spans early, late, twice and without a root; bodies that are none; the questions of agents."""

import asyncio
import gzip
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from support.captured import ids
from support.polling import aeventually
from support.traced import TRACE, documents, otlp_json, span

from ragguard import RagGuard
from ragguard.errors import InvalidInput
from ragguard.traces import spool

ROOT = span(1, at=(1, 99), openinference__span__kind="CHAIN", input__value="Who?", output__value="Ada")
QUESTION, TRUE, FALSE = (
    "Who founded Corwell Mills?", "Ursula Almberg founded Corwell Mills.", "Zantek Foods is based in East Dundale.",
)  # fmt: skip
PROTOBUF = {"content-type": "application/x-protobuf"}


def hop(number, *found):
    return span(number, 1, openinference__span__kind="RETRIEVER", input__value="who", **documents(*found))


async def send(asked, *spans, after=0.0):
    asked.clock[0] += after
    reply = await asked.post("/v1/traces", json=otlp_json(*spans))
    assert reply.status_code == 200, reply.text
    return reply.json()


async def steps(asked, after=0.0):
    """The passages of the steps of each run, after some seconds."""
    asked.clock[0] += after
    await asked.ingest.hand_over()
    return [[ids(step.passages) for step in run.steps] for run in asked.rg.runs()]


async def test_a_trace_is_complete_once_its_root_ended_and_nothing_came_since(client):
    async with client() as asked:
        await send(asked, hop(2, "a"))
        assert await steps(asked, 10) == []
        await send(asked, ROOT)
        assert await steps(asked, 4) == []
        await send(asked, hop(3, "b"))
        assert await steps(asked, 4) == []
        assert await steps(asked, 2) == [[["a"], ["b"]]]


async def test_a_trace_without_a_root_is_complete_when_it_is_quiet(client):
    async with client() as asked:
        await send(asked, hop(2, "a"))
        assert await steps(asked, 59) == []
        assert await steps(asked, 2) == [[["a"]]]


async def test_late_spans_amend_the_run_and_repeated_ones_change_nothing(client):
    async with client() as asked:
        await send(asked, ROOT, hop(2, "a"))
        assert await steps(asked, 6) == [[["a"]]]
        (before,) = asked.rg.runs()
        await send(asked, ROOT, hop(2, "a"), after=20)
        assert await steps(asked, 6) == [[["a"]]]
        await send(asked, hop(3, "b"), after=20)
        assert await steps(asked, 6) == [[["a"], ["b"]]]
        (run,) = asked.rg.runs()
        assert run.id == before.id
        await asked.rg.aflush(60)
        said = [*asked.rg.scores(run.id), *asked.rg.failures(run.id)]
        assert {one.step_id for one in said} >= {f"{number:016x}" for number in (2, 3)}


async def test_spans_that_come_after_a_trace_is_forgotten_are_refused(client):
    async with client() as asked:
        await send(asked, ROOT, hop(2, "a"))
        await steps(asked, 6)
        await steps(asked, 700)
        reply = await send(asked, hop(3, "b"))
        assert reply["partialSuccess"]["rejectedSpans"] == "1"
        assert "too late" in reply["partialSuccess"]["errorMessage"]
        assert await steps(asked, 100) == [[["a"]]]


async def test_a_whole_run_that_comes_after_its_trace_is_forgotten_takes_the_place_of_the_first(client):
    def whole(*queries):
        steps = [{"query": query, "passages": ["text"]} for query in queries]
        line = json.dumps({"id": "r1", "question": "Who?", "steps": steps})
        return span(1, at=(1, 99), openinference__span__kind="CHAIN", ragguard__run__whole=line)

    async with client() as asked:
        await send(asked, whole("who"))
        assert len(await steps(asked, 6)) == 1
        await steps(asked, 700)
        assert await send(asked, whole("who", "and who")) == {}
        assert [len(found) for found in await steps(asked, 6)] == [2]
        assert [run.id for run in asked.rg.runs()] == ["r1"]


async def test_runs_are_made_while_spans_come_without_a_break(client):
    ended = threading.Event()
    async with client(scorers=()) as asked:
        working = asyncio.create_task(asked.ingest.run())
        taking = asyncio.create_task(asked.ingest.take(lambda: (ended.wait(60), [])[1]))
        for number in range(2):
            trace = f"{number + 1:032x}"
            await send(asked, *(replace(one, trace_id=trace) for one in (ROOT, hop(2, "a"))))
            asked.clock[0] += 6
            await aeventually(lambda number=number: len(list(asked.rg.runs())) == number + 1)
        ended.set()
        await taking
        working.cancel()


async def test_more_traces_than_may_be_open_are_refused_in_the_form_of_the_request(client, monkeypatch):
    monkeypatch.setattr(spool, "MOST_TRACES", 1)
    async with client() as asked:
        await send(asked, ROOT)
        other = {**otlp_json(ROOT)}
        raw = json.dumps(other).replace(TRACE, "1" * 32)
        reply = await asked.post("/v1/traces", content=raw, headers={"content-type": "application/json"})
        assert "more open traces" in reply.json()["partialSuccess"]["errorMessage"]
        assert asked.ingest.spool.counts["of more open traces than 1"] == 1


GZIP = {**PROTOBUF, "content-encoding": "gzip"}
JSON = {"content-type": "application/json"}
BAD = {
    "no protobuf": (b"\xff\xff", PROTOBUF, 400),
    "no JSON": (b"{", JSON, 400),
    "other JSON": (b'{"resourceSpans": 1}', JSON, 400),
    "deep JSON": (b"[" * 1_000_000, JSON, 400),
    "no gzip": (b"text", GZIP, 400),
    "half a gzip": (gzip.compress(b"text" * 1000)[:-9], GZIP, 400),
    "a bomb": (gzip.compress(b"\0" * 64 * 2**20), GZIP, 413),
    "too large": (b"\0" * (16 * 2**20 + 1), PROTOBUF, 413),
    "another type": (b"", {"content-type": "text/plain"}, 415),
    "another packing": (b"", {**PROTOBUF, "content-encoding": "br"}, 415),
}


@pytest.mark.parametrize("how", BAD)
async def test_a_bad_request_is_refused_and_counted_and_disturbs_nothing(client, how):
    body, headers, status = BAD[how]
    async with client() as asked:
        reply = await asked.post("/v1/traces", content=body, headers=headers)
        assert reply.status_code == status
        assert reply.content
        await send(asked, ROOT, hop(2, "a"))
        assert await steps(asked, 6) == [[["a"]]]
        metrics = (await asked.get("/metrics")).text
        assert f'ragguard_requests_total{{address="/v1/traces",status="{status}"}} 1.0' in metrics


async def test_broken_span_is_refused_alone_and_named(client):
    request = otlp_json(ROOT, hop(2, "a"))
    spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans.append({**spans[1], "traceId": "zz"})
    short = ExportTraceServiceRequest()
    short.resource_spans.add().scope_spans.add().spans.add(name="short", trace_id=b"abc", span_id=b"x" * 8)
    async with client() as asked:
        said = (await asked.post("/v1/traces", json=request)).json()["partialSuccess"]
        assert (said["rejectedSpans"], "traceId: 'zz' is no id of 16 bytes" in said["errorMessage"]) == (
            "1",
            True,
        )
        reply = await asked.post("/v1/traces", content=short.SerializeToString(), headers=PROTOBUF)
        partial = ExportTraceServiceResponse.FromString(reply.content).partial_success
        assert (partial.rejected_spans, "traceId 616263" in partial.error_message) == (1, True)
        assert (await asked.post("/v1/traces", json={})).json() == {}
        assert await steps(asked, 6) == [[["a"]]]
        assert 'ragguard_spans_total{what="that are broken"} 2.0' in (await asked.get("/metrics")).text


async def test_run_lines_are_taken_and_bad_ones_named(client):
    line = json.dumps({"id": "r1", "question": "Who?", "steps": [{"query": "who", "passages": ["text"]}]})
    other = json.dumps({"id": "r1", "question": "Another?", "steps": []})
    async with client() as asked:
        reply = (await asked.post("/v1/runs", content=f"{line}\n\n{{\n{other}\n")).json()
        assert reply["accepted"] == 1
        assert [one[:7] for one in reply["rejected"]] == ["line 3,", "line 4,"]
        assert "another question" in reply["rejected"][1]
        metrics = (await asked.get("/metrics")).text
        assert 'ragguard_run_lines_total{what="accepted"} 1.0' in metrics
        assert 'ragguard_run_lines_total{what="rejected"} 2.0' in metrics
        await asked.rg.aflush(60)
        assert asked.rg.scores("r1")
        named = json.dumps({"question": "Why?", "steps": [], "metadata": {"ragguard.caller_id": "app-1"}})
        assert (await asked.post("/v1/runs", content=named)).json()["accepted"] == 1
        assert asked.rg.feedback("app-1", "up")


async def test_a_run_that_is_sent_reads_no_file_of_the_service(client, tmp_path):
    (tmp_path / "q.jsonl").write_text('{"question": "Who?", "steps": [], "sub_questions": ["secret"]}\n')
    line = {"id": "r1", "question": "Who?", "steps": [], "sub_questions": str(tmp_path / "q.jsonl")}
    async with client() as asked:
        reply = (await asked.post("/v1/runs", json=line)).json()
    assert reply["accepted"] == 0
    assert "sub_questions" in reply["rejected"][0]


async def test_prune_keeps_of_the_example_in_the_docs_the_passage_that_answers(client):
    page = (Path(__file__).parents[2] / "docs/how-to/serve.md").read_text("utf-8")
    body = page.partition("/v1/prune -d '")[2].partition("'")[0]
    async with client() as asked:
        assert (await asked.post("/v1/prune", content=body)).json()["kept"] == [0]


async def test_advise_says_what_to_do(client):
    async with client() as asked:
        read = [{"query": QUESTION, "passages": [TRUE]}]
        run = {"question": QUESTION, "sub_questions": [QUESTION], "steps": read}
        reply = (await asked.post("/v1/advise", json={"run": run, "budget_ms": 60_000})).json()
        assert reply["action"] == "answer"
        assert (await asked.post("/v1/advise", json={"run": {"question": "Who?"}})).status_code == 400
        assert (await asked.post("/v1/advise", json=[])).status_code == 400


RUN = {"question": "Who?", "steps": [{"query": "who", "passages": ["text"]}]}
WRONG = {
    "/v1/prune": [({"query": "who", "passages": [], "tresh": 1}, "tresh", "the fields are query, passages"),
                  ({"query": "who"}, "passages", "it is missing"),
                  ({"query": "who", "passages": [{"text": 3}]}, "passages[0].text", "a text"),
                  ([], "the body", "an object")],
    "/v1/advise": [({"run": RUN, "budget": 1}, "budget", "did you mean 'budget_ms'"), ({"run": 3}, "run", "an object"),
                   ({"run": RUN, "budget_ms": "soon"}, "budget_ms", "a number"),
                   ({"run": {**RUN, "steps": 1}}, "run.steps", "a list")],
    "/v1/feedback": [({"run": "r", "thumb": "up", "nots": "x"}, "nots", "the fields are run, thumb, note"),
                     ({"run": "r", "thumb": "left"}, "thumb", "up, down"),
                     ({"run": [], "thumb": "up"}, "run", "a text")],
    "/compute_info_gain": [({"items": [{"answer": "Ada"}]}, "items[0].answer", "did you mean 'answers'"),
                           ({"items": [{"context": 3}]}, "items[0].context", "a text"), ({}, "items", "it is missing")],
}  # fmt: skip


@pytest.mark.parametrize(("address", "body", "field", "allowed"), [
    (address, *case) for address, cases in WRONG.items() for case in cases
])  # fmt: skip
async def test_a_field_that_is_unknown_or_wrong_is_refused_by_its_name(client, address, body, field, allowed):
    async with client() as asked:
        reply = await asked.post(address, json=body)
        message = reply.json()["message"]
        assert (reply.status_code, message.partition(": ")[0]) == (400, field)
        assert allowed in message


async def test_feedback_on_an_unknown_run_says_where_ids_are(client):
    async with client() as asked:
        reply = await asked.post("/v1/feedback", json={"run": "nobody", "thumb": "up"})
        assert (reply.status_code, reply.json()["kept"]) == (404, False)
        assert "'nobody'" in reply.json()["message"]


async def test_info_gain_is_what_the_belief_scorer_gives(client):
    item = {"question": QUESTION, "context": TRUE, "answers": ["Ursula Almberg"]}
    async with client() as asked:
        reply = (await asked.post("/compute_info_gain", json={"items": [item, {"question": "Who?"}]})).json()
        details = reply["details"][0]
        assert reply["scores"][0] == details["delta_seper"] > 0.2
        assert details["delta_seper"] == pytest.approx(details["seper"] - details["seper_closed_book"])
        assert (reply["errors"][0], reply["scores"][1], reply["details"][1]) == (None, None, None)
        assert "context, answers: got 'nothing'" in reply["errors"][1]
        assert (await asked.post("/compute_info_gain", json={"items": []})).json()["scores"] == []
        assert (await asked.get("/health")).json() == {"status": "healthy"}


@pytest.mark.parametrize(("context", "status"), [("", 400), (TRUE, 503)])
async def test_info_gain_of_items_that_all_failed_is_an_error_and_no_number(client, context, status):
    item = {"question": QUESTION, "context": context, "answers": ["Ursula Almberg"]}
    async with client() as asked:
        await asked.endpoints.info_gain.aclose()
        reply = await asked.post("/compute_info_gain", json={"items": [item, item]})
        assert (reply.status_code, list(reply.json())) == (status, ["message"])


@pytest.mark.parametrize(
    ("headers", "token", "status"),
    [
        ({}, "", 200),
        ({"origin": "http://localhost"}, "", 200),
        ({"origin": "https://elsewhere.example"}, "", 403),
        ({"host": "elsewhere.example:4318"}, "", 403),
        ({"host": "127.0.0.1:4318"}, "", 200),
        ({"origin": "https://elsewhere.example", "authorization": "Bearer abc"}, "abc", 403),
        ({"host": "ragguard:4318", "authorization": "Bearer abc"}, "abc", 200),
    ],
)
async def test_page_of_another_site_is_refused(client, headers, token, status):
    async with client(token=token) as asked:
        reply = await asked.post("/v1/runs", content=b"", headers=headers)
        assert reply.status_code == status, reply.text


def test_spool_is_readable_by_its_owner_alone(tmp_path):
    kept = spool.Spool(tmp_path / "spans.db")
    assert {one.stat().st_mode & 0o077 for one in tmp_path.iterdir()} == {0}
    kept.close()


def test_sender_without_texts_is_refused_since_nothing_could_be_scored():
    with pytest.raises(InvalidInput, match="its texts a run cannot be scored"):
        RagGuard(engine=None, store=None, otlp="http://127.0.0.1:9")


async def test_service_is_ready_once_the_models_are_loaded(client):
    loading = asyncio.Event()

    async def load(*_):
        await loading.wait()
        raise OSError("no such file")

    async with client() as asked:
        asked.endpoints.guard.judged = load
        task = asyncio.create_task(asked.endpoints.load())
        before = await asked.get("/readyz")
        loading.set()
        await task
        after = await asked.get("/readyz")
    assert (before.status_code, before.json()) == (503, {"status": "the models are being loaded"})
    assert (after.status_code, after.json()) == (200, {"status": "ready"})


ASKED = span(5, 1, at=(2, 3), openinference__span__kind="LLM", input__value="Who founded Corwell Mills?")
FOUND = {"openinference__span__kind": "RETRIEVER", "input__value": QUESTION}


async def live(asked, *spans):
    """The runs of the store once these spans came and what is open was scored."""
    await send(asked, *spans)
    await asked.ingest.show_open()
    waiting = asked.rg._service._live
    async with asyncio.timeout(60):
        while (runs := [*asked.rg.runs()]) and runs[0].status == "open" and not asked.rg.scores(runs[0]):
            await asyncio.sleep(0.02)
        while waiting._running or waiting.next_in() is not None:
            await asyncio.sleep(0.02)
    return list(asked.rg.runs())


def document(text):
    return {"retrieval__documents__0__document__content": text}


async def test_steps_of_a_trace_that_is_not_complete_are_scored_as_they_end(client):
    root = span(1, at=(1, 99), openinference__span__kind="AGENT", input__value=QUESTION, output__value="Ada")
    async with client() as asked:
        (run,) = await live(asked, ASKED, span(2, 1, **FOUND, **document(TRUE)))
        assert (run.status, run.question, len(run.steps)) == ("open", QUESTION, 1)
        assert {score.provisional for score in asked.rg.scores(run)} == {True}
        (run,) = await live(asked, span(3, 1, **FOUND, **document(FALSE)))
        assert (run.status, len(run.steps)) == ("open", 2)
        assert {score.step_id for score in asked.rg.scores(run)} >= {step.id for step in run.steps}
        await send(asked, root)
        assert len(await steps(asked, 6)) == 1
        await asked.rg.aflush(60)
        (ended,) = asked.rg.runs()
        assert (ended.id, ended.status, ended.answer) == (run.id, "ok", "Ada")
        assert {score.provisional for score in asked.rg.scores(ended)} == {False}


async def test_an_open_run_goes_where_a_trace_becomes_a_run_of_another_root(client):
    async with client() as asked:
        (run,) = await live(asked, span(3, 2, **FOUND, **document(TRUE)))
        assert (run.question, run.id[-1]) == ("", "2")
        (run,) = await live(asked, span(2, 1, at=(5, 60), openinference__span__kind="TOOL"))
        assert run.id[-1] == "1"
        other = span(1, 9, at=(1, 99), openinference__span__kind="AGENT", input__value="Another question?")
        await send(asked, other, span(9, at=(1, 100), openinference__span__kind="CHAIN", input__value="Who?"))
        assert len(await steps(asked, 6)) == 1
        (ended,) = asked.rg.runs()
        assert (ended.id[-1], ended.question, ended.status) == ("9", "Who?", "ok")
