"""Servers of typed questions as judges: what they are asked, what is read, and what is refused."""

from __future__ import annotations

import asyncio

import pytest
from support.decision_server import FORMS, DecisionServer, overlap
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer, Reply, engine_on

from ragguard import DistractorGuard, Passage, RagGuard
from ragguard.engines.connect import connect, open_engine
from ragguard.engines.entailer import EngineEntailer
from ragguard.engines.entailment import Pair
from ragguard.engines.http import decisions
from ragguard.engines.prompts import load_prompts
from ragguard.errors import EngineProtocolError, EngineRejected, InvalidInput, UnfitText
from ragguard.records import RetrievalStep, Run
from ragguard.scorers.pipeline import ScoringPipeline
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
    async with MisbehavingServer(DecisionServer("sglang").handle) as server:
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
        assert len(server.paths("systemone")) + len(server.paths("decisions")) <= 2  # none is repeated


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


async def test_decision_model_of_langchain_is_a_judge():
    langchain = pytest.importorskip("langchain_core.decisions")

    class Overlaps(langchain.BaseDecisionModel):
        model: str = "overlaps"

        @property
        def _provider(self):
            return "here"

        def _classify(self, state, questions):
            answers = {}
            for name, one in questions.items():
                keys = [*one.criteria] if one.type == "choice" else [*range(len(one.criteria))]
                p = overlap(state, one.instructions, keys)
                body = {"probabilities": dict(zip(keys, p, strict=True)), "confidence": 0.5}
                body |= {"choice": keys[0]} if one.type == "choice" else {"score": 0.0, "legend": {}}
                answers[name] = {"type": one.type, **body}
            usage = {"input_tokens": 7, "output_tokens": 0}
            return langchain.ClassifierResponse(model=self.model, answers=answers, usage=usage)

    judge = connect(Overlaps())
    pipeline = ScoringPipeline(connect("nano"), judge=judge, scorers=["utility", "grades"])
    run = Run(id="r", question=QUERY, steps=[])
    with RagGuard("nano", judge=Overlaps(), scorers=["utility", "grades"], store=None) as rg:
        with rg.run(QUERY) as handle:
            handle.retrieved(QUERY, [Passage(PASSAGE)])
        found = await rg.score(handle)
    assert await pipeline.results(run) == []
    names = {one.name: one for one in found}
    told = overlap(f"<document 1>\n{PASSAGE}\n</document>", ASKED[0].prompt.messages[0].content, ["a", "b"])
    assert names["p_relevant"].value == pytest.approx(told[0])
    assert names["grade"].engine == "decisions/langchain/Overlaps/overlaps/1"
    await pipeline.aclose()


def both_faces(form, top=0, mass=None):
    """A server of chat completions that answers typed questions as well."""
    chat = FakeModel(face="openai", top=top)
    face = DecisionServer(form, models=chat.models, mass=mass)

    def handle(request):
        typed = request.path in ("/v1/systemone", "/v1/decisions")
        return (face if typed else chat).handle(request)

    return handle, face


@pytest.mark.parametrize("form", FORMS)
async def test_server_that_has_both_reads_by_chat_and_judges_by_typed_questions(form, caplog):
    handle, face = both_faces(form)
    async with engine_on(handle, connect) as (server, engine):
        info = await engine.info()
        face.asked.clear()
        step = RetrievalStep(id="s", run_id="r", query=QUERY, passages=[Passage(PASSAGE)])
        run = Run(id="r", question=QUERY, steps=[step], sub_questions=["Who is Ursula?"])
        pipeline = ScoringPipeline(engine, scorers=["utility", "grades", "coverage"])
        scores = {one.name: one for one in await pipeline.results(run)}
        decision = await DistractorGuard(engine, budget_ms=60_000, min_keep=0).aprune(
            QUERY, [Passage(PASSAGE)]
        )
        plan = await pipeline.plan(run)
    ((state, questions),) = face.asked  # the guard's question was answered before
    assert (state, questions) == (f"<document 1>\n{PASSAGE}\n</document>", 3)
    told = overlap(state, ASKED[0].prompt.messages[0].content, ["yes", "no"])
    assert scores["p_relevant"].value == pytest.approx(told[0])
    assert scores["p_relevant"].stderr == 0.0
    assert scores["p_abstain"].metadata["how"] == "sampled"
    assert {scores[name].prompts for name in ("p_relevant", "p_abstain", "grade")} == {
        "default+decisions/1+1"
    }
    assert info.fingerprint.endswith(f"+judges:{form}/1")
    assert decision.status != "error"
    assert sum(cost.output_tokens for (who, _), cost in plan.calls.items() if who == "engine") == 160
    said = f"`labels:{server.url}` asks for labels instead"
    assert said in info.notes[-1]
    assert caplog.text.count(said) == 1


@pytest.mark.parametrize(("reply", "said"), [(Reply({"detail": "x"}, 429), True), (Reply({"ok": 1}), False)])
async def test_labels_judge_where_typed_questions_are_not_answered_and_doubt_is_a_note(reply, said):
    chat = FakeModel(face="openai")

    def handle(request):
        return chat.handle(request) if request.path in ("/v1/models", "/v1/chat/completions") else reply

    async with MisbehavingServer(handle) as server:
        engine = open_engine(server.url)
        info = await engine.info()
        await engine.aclose()
    assert info.prompts == "default"
    assert any("could not be found out" in note for note in info.notes) is said


@pytest.mark.parametrize("mass", [None, 0.9])
async def test_labels_that_are_shown_are_given_up_for_typed_questions_with_a_label_mass_alone(mass):
    handle, _ = both_faces("systemone", top=20, mass=mass)
    async with engine_on(handle, open_engine) as (_, engine):
        info = await engine.info()
    assert info.prompts == ("default" if mass is None else "default+decisions")
    assert ("label_mass" in info.capabilities) is (mass is not None)


async def test_address_that_names_labels_asks_no_typed_question():
    handle, face = both_faces("systemone")
    async with MisbehavingServer(handle) as server:
        engine = connect(f"labels:{server.url}")
        info = await engine.info()
        await engine.aclose()
    assert not face.asked
    assert (info.prompts, "typed_questions" in info.capabilities) == ("default", False)


async def test_published_price_is_a_note():
    face = DecisionServer("openai", models=("gpt-6-luna",))
    async with MisbehavingServer(face.handle) as server:
        host, engine = server.url.partition("//")[2].partition(":")[0], open_engine(f"decisions:{server.url}")
        assert (await engine.info()).notes == ()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(decisions, "PUBLISHED", {(host, "gpt-6-luna"): 0.10})
            priced = open_engine(f"decisions:{server.url}")
            assert "Price(prompt=0.1, output=0)" in (await priced.info()).notes[0]
        await asyncio.gather(engine.aclose(), priced.aclose())
