"""Servers of typed questions as judges: what they are asked, what is read, and what is refused."""

from __future__ import annotations

import asyncio

import pytest
from support.decision_server import FORMS, DecisionServer, overlap
from support.misbehaving_server import MisbehavingServer, Reply

from ragguard import DistractorGuard, Passage, RagGuard
from ragguard.engines.connect import connect, open_engine
from ragguard.engines.entailer import EngineEntailer, Pair
from ragguard.engines.prompts import load_prompts
from ragguard.errors import EngineProtocolError, EngineRejected, InvalidInput, UnfitText
from ragguard.scorers.probes import answerability, grade, relevance

PROMPTS = load_prompts("decisions")
PASSAGE, QUERY = "Ursula Almberg founded Corwell Mills.", "Who founded Corwell Mills?"
ASKED = [
    relevance(PROMPTS, QUERY, PASSAGE),
    grade(PROMPTS, QUERY, PASSAGE),
    answerability(PROMPTS, "Who is Ursula?", PASSAGE),
    answerability(PROMPTS, "What did Ursula Almberg found?", PASSAGE),
]


def address(form: str, url: str) -> str:
    return f"{'systemone' if form == 'systemone' else 'decisions'}:{url}"


@pytest.mark.parametrize("form", FORMS)
async def test_questions_about_one_passage_are_one_request_and_read_by_name(form):
    """The server gives options and answers in another order, and tells how much of its probability lies on them."""
    face = DecisionServer(form, mass=0.8)
    async with MisbehavingServer(face.handle) as server:
        engine = connect(address(form, server.url))
        await engine.info()
        face.asked.clear()
        rows = await asyncio.gather(*(engine.label_probs([one.prompt], one.labels) for one in ASKED))
        await engine.aclose()
    ((state, questions),) = face.asked
    assert (state, questions) == (f"<document 1>\n{PASSAGE}\n</document>", 4)
    mass = 1.0 if form == "openai" else 0.8
    for one, row in zip(ASKED, rows, strict=True):
        told = overlap(state, one.prompt.messages[0].content, list(one.labels))
        assert row.p[0] == pytest.approx([mass * p for p in told])
        assert row.mass[0] == pytest.approx(mass)


async def test_more_questions_than_a_server_takes_are_several_requests():
    face = DecisionServer("systemone", most_questions=64)
    async with MisbehavingServer(face.handle) as server:
        engine = open_engine(f"systemone:{server.url}")
        asked = [answerability(PROMPTS, f"What is {number}?", PASSAGE) for number in range(150)]
        probs = await engine.label_probs([one.prompt for one in asked], asked[0].labels)
        await engine.aclose()
    assert [number for _, number in face.asked[1:]] == [64, 64, 22]
    assert probs.p.sum(axis=1) == pytest.approx(1.0)


@pytest.mark.parametrize("form", FORMS)
async def test_judge_gives_all_that_is_judged_and_the_reader_reads(form, caplog):
    face = DecisionServer(form, refuses="Zantek")
    async with MisbehavingServer(face.handle) as server:
        judge = address(form, server.url)
        with RagGuard("nano", judge=judge, scorers=["utility", "coverage", "grades"], store=None) as rg:
            with rg.run(QUERY, references=["Ursula Almberg"], sub_questions=[QUERY]) as run:
                run.retrieved(QUERY, [Passage(PASSAGE), Passage("Zantek Foods is based in East Dundale.")])
                run.answered("Ursula Almberg")
            found = await rg.score(run)
    scores = {(one.name, one.position): one for one in found}
    question = relevance(PROMPTS, QUERY, PASSAGE, question=QUERY, references=["Ursula Almberg"])
    told = overlap(
        f"<document 1>\n{PASSAGE}\n</document>", question.prompt.messages[0].content, ["yes", "no"]
    )
    assert scores["p_relevant", 1].value == pytest.approx(told[0])
    assert scores["p_relevant", 1].engine.startswith(f"decisions/{form}/judge-1/")
    assert scores["p_relevant", 1].prompts == "decisions/1"
    assert scores["p_abstain", 1].engine.startswith("nano:")
    assert ("grade", 1) in scores
    assert ("answerability", 1) in scores
    # The refusal costs the judgements of one passage, and no others.
    assert ("p_relevant", 2) not in scores
    assert "UnfitText: p_relevant of passage 2" in caplog.text


async def test_entailment_and_guard_are_judged_too():
    def always_first(state, question, options):
        return [0.9] + [0.1 / (len(options) - 1)] * (len(options) - 1)

    async with MisbehavingServer(DecisionServer("openai", probabilities=always_first).handle) as server:
        judge = connect(f"decisions:{server.url}")
        row = (await EngineEntailer(judge).entail([Pair("Who?", "Ada Berg", "Berg")])).p[0]
        assert row == pytest.approx([0.9, 0.05, 0.05])
        guard = DistractorGuard("nano", judge=judge, budget_ms=60_000)
        decision = await guard.aprune(QUERY, [Passage(PASSAGE)])
        assert decision.status == "kept_all"
        await judge.aclose()


@pytest.mark.parametrize("make", [lambda e: RagGuard(e, store=None), DistractorGuard])
def test_decision_server_is_refused_as_the_reader(make):
    with pytest.raises(InvalidInput, match=r"engine: .* give it as `judge=`"):
        make("decisions:http://127.0.0.1:9/v1")


async def test_decision_server_refuses_to_write_and_to_abstain():
    async with MisbehavingServer(DecisionServer("openai").handle) as server:
        engine = open_engine(f"decisions:{server.url}")
        for call in (engine.sample(["Who?"], n=1), engine.label_probs(["Who?"], ["NO-RESPONSE"])):
            with pytest.raises(EngineRejected, match=r"give it as `judge=`, and a model that reads"):
                await call
        await engine.aclose()


@pytest.mark.parametrize(
    ("scheme", "reply", "says"),
    [
        ("systemone", Reply({"error": {"message": "not supported", "code": 501}}, 501), "501"),
        ("systemone", Reply({"detail": "Not Found"}, 404), "404"),
        ("decisions", Reply({"error": {"message": "unknown field: model"}}, 422), "422"),
    ],
)
async def test_server_that_speaks_no_such_form_is_one_sentence_with_the_way_out(scheme, reply, says):
    face = DecisionServer("openai")
    async with MisbehavingServer(
        lambda request: face.handle(request) if request.path == "/v1/models" else reply
    ) as server:
        engine = open_engine(f"{scheme}:{server.url}")
        with pytest.raises(EngineRejected, match=f"{says}.*the same server without `{scheme}:`"):
            await engine.info()
        await engine.aclose()
        assert len(server.paths("systemone")) + len(server.paths("decisions")) == 1


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        ({"probabilities": {"yes": 0.9, "no": 0.9}}, EngineProtocolError, "which add up to 1"),
        ({"probabilities": {"yes": 1.0}}, EngineProtocolError, "one probability for each of yes, no"),
        ({"probabilities": {"yes": "high", "no": "low"}}, EngineProtocolError, "one probability for each"),
        ({"probabilities": {"yes": 1.0, "no": 0.0}, "label_mass": 7}, EngineProtocolError, "label mass"),
        ({"type": "refusal"}, UnfitText, "was declined"),
    ],
)
async def test_answer_that_cannot_be_right_is_an_error_of_its_question(answer, error, says):
    face = DecisionServer("systemone")
    async with MisbehavingServer(face.handle) as server:
        engine = open_engine(f"systemone:{server.url}")
        await engine.info()
        (question,) = [relevance(PROMPTS, QUERY, PASSAGE)]
        await engine.label_probs([question.prompt], question.labels)
        (name,) = server.requests[-1].json["questions"]
        server.script([Reply({"answers": {name: answer}})], "/systemone")
        with pytest.raises(error, match=says):
            await engine.label_probs([question.prompt], question.labels)
        await engine.aclose()
