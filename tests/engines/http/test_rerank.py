"""Rerankers as judges of relevance: their forms, what they refuse, and the examination that calibrates them."""

from __future__ import annotations

import math

import pytest
from support.commands import ragguard
from support.misbehaving_server import MisbehavingServer, Reply, serving
from support.rerank_server import FORMS, RerankServer, score
from support.scripted_engine import ScriptedEngine

from ragguard import DistractorGuard, Passage, RagGuard
from ragguard.engines.connect import connect, open_engine
from ragguard.engines.prompts import load_prompts
from ragguard.errors import EngineProtocolError, EngineRejected, InvalidInput
from ragguard.lab.exam.examination import examine
from ragguard.records import Failure, RetrievalStep, Run, Score
from ragguard.scorers.exam.record import keep_record, record_file
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.probes import relevance

PROMPTS = load_prompts("rerank")
QUERY = "who founded Corwell Mills"
PASSAGES = ["Corwell Mills is red.", "Ursula founded Corwell Mills in May.", "Oslo sells clocks."]


@pytest.fixture(autouse=True)
def exams(monkeypatch, tmp_path):
    monkeypatch.setenv("RAGGUARD_EXAMS", str(tmp_path / "exams"))


def asked(query: str, passages: list[str]) -> list[object]:
    return [relevance(PROMPTS, query, text).prompt for text in passages]


@pytest.mark.parametrize("form", FORMS)
async def test_passages_of_one_query_are_one_request_in_the_form_of_the_server(form):
    face = RerankServer(form)
    async with MisbehavingServer(face.handle) as server:
        engine = connect(f"rerank:{server.url}#some-reranker")
        await engine.info()
        face.asked.clear()
        prompts = [*asked(QUERY, PASSAGES), *asked("what does Oslo sell", PASSAGES[:1])]
        found = await engine.label_probs(prompts, ["yes", "no"])
        await engine.aclose()
    assert sorted(face.asked) == [("what does Oslo sell", 1), (QUERY, 3)]
    scores = [score(QUERY, text) for text in PASSAGES]
    assert [math.log(p / q) for p, q in found.p[:3]] == pytest.approx(scores)
    assert found.usage.prompts == 4


async def examined(address: str) -> None:
    engine = open_engine(address)
    record = await examine(engine, PROMPTS)
    assert record.figures["relevance"] >= 0.75
    assert record.relevance_odds is not None
    assert record.reasons == {}
    keep_record(record, record_file(await engine.info(), PROMPTS))
    await engine.aclose()


def reader() -> ScriptedEngine:
    return ScriptedEngine(label=lambda text, label: 0.05 if label == "NO-RESPONSE" else 0.3)


async def scored(run: Run, address: str, name: str = "utility") -> list[Score | Failure]:
    pipeline = ScoringPipeline(reader(), judge=connect(address), scorers=[name])
    try:
        return await pipeline.results(run)
    finally:
        await pipeline.aclose()


async def test_scores_are_probabilities_only_after_an_examination():
    run = Run(
        id="r",
        question=QUERY,
        steps=[
            RetrievalStep(id="s", run_id="r", index=0, query=QUERY, passages=[Passage(t) for t in PASSAGES])
        ],
    )
    with serving(RerankServer().handle) as url:
        address = f"rerank:{url}"
        before = await scored(run, address)
        assert not [one for one in before if isinstance(one, Score) and one.name == "p_relevant"]
        assert any("--exam" in one.message for one in before if isinstance(one, Failure))
        await examined(address)
        results = await scored(run, address)
    p = {one.position: one.value for one in results if isinstance(one, Score) and one.name == "p_relevant"}
    assert p[2] > p[1] > p[3]
    assert p[2] > 0.5 > p[3]


async def test_guard_asks_the_reranker_once_and_keeps_everything_before_its_examination():
    face = RerankServer()
    async with MisbehavingServer(face.handle) as server:
        address = f"rerank:{server.url}"
        judge = connect(address)
        undecided = await DistractorGuard(reader(), judge=judge, budget_ms=60_000).aprune(QUERY, PASSAGES)
        assert (undecided.status, len(undecided.kept)) == ("error", 3)
        assert "--exam" in undecided.reason
        await examined(address)
        face.asked.clear()
        guard = DistractorGuard(reader(), judge=judge, budget_ms=60_000, threshold=0.0)
        decision = await guard.aprune("who founded Norwell Mills", PASSAGES)
        await judge.aclose()
    assert decision.status == "pruned", decision
    assert face.asked == [("who founded Norwell Mills", 3)]
    assert [passage.text for passage in decision.kept] == [PASSAGES[1]]


async def test_what_is_no_relevance_is_left_to_the_reader():
    face = RerankServer()
    run = Run(
        id="r",
        question=QUERY,
        steps=[RetrievalStep(id="s", run_id="r", index=0, query=QUERY, passages=[Passage(PASSAGES[1])])],
    )
    with serving(face.handle) as url:
        results = await scored(run, f"rerank:{url}", "grades")
    assert [one for one in results if isinstance(one, Score) and one.name == "grade"]
    assert face.asked == [("Who runs it?", 2)], "the reranker was only looked at"


def test_reranker_is_refused_as_the_reader():
    for make in (lambda e: RagGuard(e, store=None), DistractorGuard):
        with pytest.raises(InvalidInput, match="reranker only judges"):
            make("rerank:http://127.0.0.1:9/v1")


async def test_rerankers_refuse_to_read_and_say_who_does():
    async with MisbehavingServer(RerankServer().handle) as server:
        engine = open_engine(f"rerank:{server.url}")
        for call in (engine.sample(["Who?"], n=1), engine.label_probs(["Who?"], ["NO-RESPONSE"])):
            with pytest.raises(EngineRejected, match="the engine has to read"):
                await call
        await engine.aclose()


def rows(*scores: object, first: int = 0) -> list[dict[str, object]]:
    return [{"index": at, "relevance_score": one} for at, one in enumerate(scores, first)]


HOSTILE = pytest.mark.parametrize(
    "results",
    [
        rows(0.5, 0.2),
        rows(0.5, 0.2, 0.1, 0.4),
        rows(0.5, 0.2, 0.1, first=1),
        [*rows(0.5, 0.2), {"index": 1, "relevance_score": 0.4}],
        rows(0.5, 0.2, float("nan")),
        rows(0.5, 0.2, None),
        rows(0.5, 0.2, True),
        ["a", "b", "c"],
        None,
    ],
    ids="fewer more shifted doubled nan none true texts nothing".split(),
)


@HOSTILE
async def test_results_that_cannot_be_right_are_one_error(results):
    async with MisbehavingServer(RerankServer().handle) as server:
        engine = open_engine(f"rerank:{server.url}")
        await engine.info()
        server.script([Reply({"results": results})], "/rerank")
        with pytest.raises(EngineProtocolError, match="each once with its `index`"):
            await engine.label_probs(asked(QUERY, PASSAGES), ["yes", "no"])
        assert len(await engine.label_probs(asked(QUERY, PASSAGES), ["yes", "no"])) == 3
        await engine.aclose()


@HOSTILE
async def test_guard_keeps_everything_when_results_cannot_be_right(results):
    async with MisbehavingServer(RerankServer().handle) as server:
        address = f"rerank:{server.url}"
        await examined(address)
        guard = DistractorGuard(reader(), judge=connect(address), budget_ms=60_000, threshold=0.0)
        await guard.judge.info()
        server.script([Reply({"results": results})], "/rerank")
        decision = await guard.aprune("who founded Norwell Mills", PASSAGES)
        await guard.aclose()
    assert (decision.status, len(decision.kept)) == ("error", 3)
    assert "each once with its `index`" in decision.reason


async def test_answer_of_another_model_is_noticed_and_scores_in_any_order_and_range_are_taken(caplog):
    async with MisbehavingServer(RerankServer().handle) as server:
        engine = open_engine(f"rerank:{server.url}#some-reranker")
        await engine.info()
        results = [{"index": at, "relevance_score": score} for at, score in ((2, -1e30), (0, 7.5), (1, 1e30))]
        server.script([Reply({"results": results, "model": "another"})], "/rerank")
        found = await engine.label_probs(asked(QUERY, PASSAGES), ["yes", "no"])
        await engine.aclose()
    assert found.p[1, 0] > found.p[0, 0] > found.p[2, 0]
    assert "was asked for some-reranker, but another answers" in caplog.text


async def test_a_server_that_ranks_nothing_is_one_sentence_with_the_way_out():
    async with MisbehavingServer(lambda request: Reply({"detail": "Not Found"}, 404)) as server:
        engine = open_engine(f"rerank:{server.url}")
        with pytest.raises(EngineRejected, match=r"takes no query with passages.*path ends in /rerank"):
            await engine.info()
        await engine.aclose()


def test_doctor_says_what_a_reranker_is_for_and_examines_it():
    with serving(RerankServer("tei").handle) as url:
        looked = ragguard("doctor", f"rerank:{url}", code=0)
        assert looked.stdout.splitlines()[-1].startswith("ready as a judge of relevance")
        shown = ragguard("doctor", f"rerank:{url}", "--exam", code=0)
        assert "relevance" in shown.stdout
