"""The service as a process: what it answered with 200 is kept and scored, whatever ends it."""

import asyncio
import gzip
import json
import signal
from dataclasses import replace

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from support.browser import CHROMIUM, chromium
from support.commands import ragguard
from support.misbehaving_server import MisbehavingServer, Reply
from support.polling import eventually
from support.served import served
from support.server_process import free_port
from support.traced import documents, otlp_json, span

from ragguard import Passage, RagGuard, RetrievalStep, Run
from ragguard.errors import InvalidInput
from ragguard.records import ScoredRun
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.telemetry.forwarding import ForwardingSink
from ragguard.telemetry.sink import DestinationAway
from ragguard.world import cases
from ragguard.world.cases import make_run

pytestmark = pytest.mark.slow

NOW = ("--settle", "0")
LATER = ("--settle", "3600", "--quiet", "3600")


def a_trace(number=0):
    """The spans of a pipeline with one retrieval."""
    trace = f"{number + 1:032x}"
    return [
        span(
            1,
            at=(1, 99),
            trace=trace,
            openinference__span__kind="CHAIN",
            input__value="Who?",
            output__value="Ada",
        ),
        span(
            2,
            1,
            trace=trace,
            openinference__span__kind="RETRIEVER",
            input__value="who",
            **documents("a", "b"),
        ),
    ]


def runs_in(folder):
    path = folder / "r.db"
    if not path.exists():
        return {}
    store = StoreReader(path)
    try:
        return {one.run.id: one for one in store.scored_runs()}
    finally:
        store.close()


def wait_for_scores(folder, count):
    eventually(lambda: sum(bool(one.scores) for one in runs_in(folder).values()) == count, 60)


def test_spans_of_an_exporter_become_a_scored_run(tmp_path):
    with served(tmp_path, *NOW) as service:
        provider = TracerProvider()
        exporter = OTLPSpanExporter(f"{service.url}/v1/traces")
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        tracer = provider.get_tracer("mine")
        asked = {"openinference.span.kind": "CHAIN", "input.value": "Who?"}
        with tracer.start_as_current_span("ask", attributes=asked):
            with tracer.start_as_current_span("search") as retrieval:
                retrieval.set_attributes(
                    {"openinference.span.kind": "RETRIEVER", "input.value": "who", **documents("a")}
                )
            wait_for_scores(tmp_path, 1)
            (found,) = runs_in(tmp_path).values()
            assert (found.run.status, {score.provisional for score in found.scores}) == ("open", {True})
        provider.shutdown()
        eventually(lambda: [one.run.status for one in runs_in(tmp_path).values()] == ["ok"], 60)
        eventually(
            lambda: not any(one.provisional for one in next(iter(runs_in(tmp_path).values())).scores), 60
        )
        (found,) = runs_in(tmp_path).values()
        assert (found.run.question, found.run.name, found.run.steps[0].passages[0].id) == ("Who?", "ask", "a")
        assert {score.name for score in found.scores} >= {"utility", "p_abstain"}
        metrics = httpx.get(f"{service.url}/metrics").text
        assert 'ragguard_spans_total{what="taken"} 2.0' in metrics
        assert '=""' not in metrics, "no label is empty"
        assert 'ragguard_requests_total{address="/v1/traces",status="200"} 2.0' in metrics


def test_runs_that_were_only_captured_and_sent_get_the_scores_of_the_process(tmp_path):
    made = [make_run(case) for case in cases(4, seed=3, hops=2)]

    def capture(rg):
        for one in made:
            with rg.run(one.question, references=one.references) as run:
                for step in one.steps:
                    run.retrieved(step.query, step.passages, turn=step.turn)
                run.answered(one.answer)
        assert rg.flush(60)

    scorers = ("belief", "utility")
    with RagGuard("nano", store=None, scorers=scorers) as rg:
        capture(rg)
        expected = {run.question: scores_of(run, rg.scores(run.id)) for run in rg.runs()}
    with (
        served(tmp_path, *NOW, "--scorers", ",".join(scorers)) as service,
        RagGuard(engine=None, store=None, otlp=service.url, capture_content=True) as rg,
    ):
        capture(rg)

        def found():
            return {one.run.question: scores_of(one.run, one.scores) for one in runs_in(tmp_path).values()}

        def same():
            scored = found()  # what fails at first is scored later; numbers differ a little by batch
            return scored.keys() == expected.keys() and all(
                scored[question] == pytest.approx(values, abs=1e-5) for question, values in expected.items()
            )

        eventually(same, 60, found=found)


def test_a_run_that_was_sent_is_known_there_by_all_that_the_application_said_of_it(tmp_path):
    kept, dropped = Passage("Ada", "a", metadata={"page": 3}), Passage("rain", "b")
    with (
        served(tmp_path, *NOW, "--scorers", "none") as service,
        RagGuard(engine=None, store=None, otlp=service.url, capture_content=True) as rg,
    ):
        known = {"session_id": "s1", "tags": ["beta"]}
        with rg.run("Who?", id="app-1", name="ask", sub_questions=["Who?"], metadata=known) as run:
            run.retrieved("who", [kept], candidates=[dropped, kept], k=4, tool="search", id="call-1")
            run.answered("Ada")
        assert rg.flush(60)
        eventually(lambda: run.id in runs_in(tmp_path), 60)
        (sent,) = rg.runs()
        found = runs_in(tmp_path)[run.id].run
        said = {"run": "app-1", "thumb": "down", "note": "by the service"}
        assert httpx.post(f"{service.url}/v1/feedback", json=said).json() == {"kept": True}
        assert run_with(tmp_path, "app-1").metadata["feedback"]["note"] == "by the service"
        assert rg.feedback("app-1", "up", "by the application")
        assert rg.flush(60)
        eventually(lambda: run_with(tmp_path, "app-1").metadata["feedback"]["thumb"] == "up", 60)
    shown = ragguard("report", tmp_path / "r.db", "--run", "app-1")
    assert (shown.exit_code, "Who?" in shown.output) == (0, True)
    places = [found.trace, *(step.trace for step in found.steps)]
    assert replace(found, trace=None, steps=[replace(step, trace=None) for step in found.steps]) == sent
    assert len({place.span_id for place in places}) == 2


def run_with(folder, name):
    store = StoreReader(folder / "r.db")
    try:
        return store.run(name)
    finally:
        store.close()


def test_what_a_service_that_is_away_does_not_take_is_sent_once_it_answers(tmp_path):
    port = free_port()

    def wait_for(count):
        eventually(lambda: len(runs_in(tmp_path)) == count, 60)

    def guard():
        address = f"http://127.0.0.1:{port}"
        return RagGuard(engine=None, store=tmp_path / "here.db", otlp=address, capture_content=True)

    def ask(rg, question, text="text"):
        with rg.run(question) as run:
            run.retrieved(question, [text])

    with guard() as rg:
        with served(tmp_path, *NOW, "--port", str(port)) as service:
            ask(rg, "first?", text="long " * 10_000)
            assert rg.flush(60)
            wait_for(1)
            service.process.kill()
            service.process.wait()
        ask(rg, "second?")
        report = rg.flush(0.5)
        assert (report.complete, report.delivering, report.undelivered) == (False, 1, ())
        to = f"http://127.0.0.1:{port}"
        assert str(report).startswith(
            f"not everything was delivered: 1 sent to {to}, which scores them; 1 runs not yet delivered ("
        )
        rg.close(timeout=0.5)
    with guard() as rg:
        ask(rg, "third?")
        with served(tmp_path, *NOW, "--port", str(port)):
            assert rg.flush(60)
            wait_for(3)
            asyncio.run(send(list(rg.runs()), port))  # once more: the same spans are the same runs
            ask(rg, "fourth?")
            assert rg.flush(60)
            wait_for(4)
            found = [one.run for one in runs_in(tmp_path).values()]
            assert str(rg.flush(60)).startswith(
                f"everything is stored and sent: 3 sent to {to}, which scores"
            )
    assert sorted(run.question for run in found) == ["first?", "fourth?", "second?", "third?"]
    assert {len(run.steps[0].passages[0].text) for run in found} == {4, 50_000}


async def send(runs, port):
    sink = ForwardingSink(f"http://127.0.0.1:{port}", capture_content=True)
    for run in runs:
        await sink.submit(ScoredRun(run, [], []))
    await sink.aclose()


async def test_texts_of_a_run_are_sent_once():
    bodies = []

    def service(request):
        bodies.append(gzip.decompress(request.body))
        return Reply(b"", headers={"content-type": "application/x-protobuf"})

    step = RetrievalStep("s", "r", 0, query="who", passages=[Passage("a text of a passage")])
    async with MisbehavingServer(service) as server:
        sink = ForwardingSink(server.url.removesuffix("/v1"), capture_content=True)
        await sink.submit(ScoredRun(Run(id="r", question="Who?", steps=[step]), [], []))
        await sink.aclose()
    assert bodies[0].count(b"a text of a passage") == 1


async def test_a_web_page_in_place_of_a_service_has_taken_no_run():
    def page(request):
        return Reply("<html>welcome</html>", headers={"content-type": "text/html"})

    run = Run(id="r", question="Who?", steps=[RetrievalStep("s", "r", 0, query="who")])
    async with MisbehavingServer(page) as server:
        sink = ForwardingSink(server.url.removesuffix("/v1"), capture_content=True)
        with pytest.raises(DestinationAway, match=r"answers as no OTLP service does \(with text/html\)"):
            await sink.submit(ScoredRun(run, [], []))
        await sink.aclose()


def scores_of(run, scores):
    """The values of scores by name, hop and passage."""
    hops = {step.id: step.index for step in run.steps}
    return {
        (score.name, hops.get(score.step_id), score.position, score.reference_source): round(score.value, 6)
        for score in scores
    }


async def test_without_an_engine_nothing_is_asked_and_scorers_are_refused():
    with pytest.raises(InvalidInput, match="runs are captured"):
        RagGuard(engine=None, scorers=["utility"], store=None)
    async with RagGuard(engine=None, store=None) as rg:
        with rg.run("Who?") as run:
            run.retrieved("who", ["Ada"])
        assert await rg.aflush(10)
        assert [step.query for step in next(iter(rg.runs())).steps] == ["who"]
        with pytest.raises(InvalidInput, match="engine=None"):
            await rg.engine.sample(["Who?"])


def test_nothing_that_was_answered_is_lost_by_a_kill(tmp_path):
    run = {"id": "r1", "question": "Who?", "steps": [{"query": "who", "passages": ["text"]}]}
    with served(tmp_path, *LATER) as service:
        for number in range(3):
            for one in a_trace(number):
                assert httpx.post(f"{service.url}/v1/traces", json=otlp_json(one)).json() == {}
        assert httpx.post(f"{service.url}/v1/runs", content=json.dumps(run)).json()["accepted"] == 1
        service.process.kill()
        service.process.wait()
    assert len(runs_in(tmp_path)) == 1  # the traces are not complete
    with served(tmp_path, *NOW) as service:
        wait_for_scores(tmp_path, 4)
        assert httpx.get(f"{service.url}/readyz").status_code == 200
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(30) == 0
    assert len(runs_in(tmp_path)) == 4


@pytest.mark.parametrize("token", ["", " \r\n"])
def test_an_address_for_others_needs_a_token(tmp_path, monkeypatch, token):
    monkeypatch.setenv("RAGGUARD_TOKEN", token)
    refused = ragguard("serve", "--host", "0.0.0.0", "-e", "nano", "-s", tmp_path / "r.db", code=2)
    assert "RAGGUARD_TOKEN" in refused.output


@pytest.mark.parametrize(("headers", "status"), [
    ({}, 401), ({"authorization": "Bearer wrong"}, 401), ({"authorization": "Basic !"}, 401),
    ({"authorization": "Bearer s3cret"}, 200), ({"authorization": "Basic dTpzM2NyZXQ="}, 200),
])  # fmt: skip
async def test_requests_bring_the_token(client, headers, status):
    async with client(token="s3cret") as asked:
        posted = await asked.post("/v1/traces", json=otlp_json(*a_trace()), headers=headers)
        assert posted.status_code == status
        assert (await asked.get("/healthz")).status_code == 200


@pytest.mark.skipif(CHROMIUM is None, reason="NO chromium HERE: apt-get install chromium")
def test_a_run_appears_and_gets_its_scores_while_one_looks(tmp_path):
    with served(tmp_path, *NOW) as service, chromium() as browser:
        page = browser.open(service.url, width=390, until="document.body != null")
        page.wait("document.body.textContent.includes('No runs yet')")
        call = {
            "openinference__span__kind": "LLM",
            "llm__model_name": "small",
            "llm__token_count__prompt": 1200,
        }
        spans = [*a_trace(), span(3, 1, at=(50, 60), trace=f"{1:032x}", **call)]
        httpx.post(f"{service.url}/v1/traces", json=otlp_json(*spans))
        page.wait(
            "document.querySelector('.hop .calls')?.textContent.includes('asked small · 1,200 tokens read')"
        )
        page.wait("document.getElementById('runs')?.textContent.includes('Who?')")
        page.wait(
            "document.documentElement.dataset.ready && document.getElementById('run').textContent.includes('text of a')"
        )
        page.value("document.getElementById('search').value = 'who'")
        page.value("document.getElementById('search').dispatchEvent(new Event('input'))")
        run = {"id": "r2", "question": "Who else?", "steps": [{"query": "who", "passages": ["text"]}]}
        httpx.post(f"{service.url}/v1/runs", content=json.dumps(run))
        page.wait("document.getElementById('runs')?.textContent.includes('Who else?')")
        assert page.value("document.getElementById('search').value") == "who"  # what was chosen stays
        page.value(
            "[...document.querySelectorAll('#runs li')].find((one) => one.textContent.includes('Who else?')).click()"
        )
        page.value("document.querySelector('.feedback input').value = 'not what was asked'")
        page.value("document.querySelectorAll('.feedback button')[1].click()")
        page.wait("document.getElementById('runs')?.textContent.includes('thumb down')")
        assert not page.value("window.violations")
    said = runs_in(tmp_path)["r2"].run.metadata["feedback"]
    assert said == {"thumb": "down", "note": "not what was asked"}
