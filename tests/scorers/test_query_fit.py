"""How well a passage fits its step's query: by how much it raises the likelihood of the query's words."""

from support.likely_engine import LikelyEngine
from support.scripted_engine import ScriptedEngine

from ragguard import connect
from ragguard.records import Failure, Passage, RetrievalStep, Run
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.utility import QueryFit

FITS, NOT, QUERY = "The ferry leaves at noon.", "Lemons are yellow.", "When does the ferry leave?"


def likely(prompt, text):
    return -1.0 if FITS in prompt else -3.5 if NOT in prompt else -3.0


def a_run(*steps):
    return Run(id="r", question=QUERY, answer="noon", steps=list(steps) or [a_step()])


def a_step(query=QUERY, passages=(FITS, NOT), **more):
    return RetrievalStep(
        id="s", run_id="r", query=query, passages=[Passage(text) for text in passages], **more
    )


async def scored(run=None, engine=None, scorer=None):
    engine = engine or LikelyEngine(likely=likely)
    return await ScoringPipeline(engine, scorers=[scorer or QueryFit()]).results(run or a_run())


async def test_gain_of_a_passage_is_what_it_adds_to_the_log_probability_of_the_query():
    results = await scored()
    assert [(s.name, s.position, s.value) for s in results] == [
        ("query_gain", 1, 2.0),
        ("query_gain", 2, -0.5),
    ]
    assert {score.reference_source for score in results} == {"none"}


async def test_one_prompt_for_each_passage_and_one_for_each_query():
    engine = LikelyEngine(likely=likely)
    again = RetrievalStep(id="t", run_id="r", index=1, query=QUERY, passages=[Passage("The ferry is red.")])
    results = await scored(a_run(a_step(), again), engine)
    assert sum(len(call.prompts) for call in engine.calls) == 4
    assert sum(score.usage.prompts for score in results) == 4


async def test_the_query_of_the_step_counts_and_not_the_runs_question():
    engine = LikelyEngine(likely=lambda prompt, text: -1.0 if text == "ferry" else -9.0)
    assert {score.value for score in await scored(a_run(a_step("ferry")), engine)} == {0.0}
    texts = {prompt.text for call in engine.calls for prompt in call.prompts}
    assert texts <= {"ferry", ""}


async def test_engine_that_cannot_tell_gives_a_failure_with_the_way_out():
    (failure,) = await scored(engine=ScriptedEngine())
    assert isinstance(failure, Failure)
    assert "smol, hf:MODEL, or a vLLM server" in failure.message


async def test_prompts_that_do_not_ask_for_a_query_are_named():
    (failure,) = await scored(engine=connect("nano"))
    assert isinstance(failure, Failure)
    assert "task of prompt set nano" in failure.message
    assert "query" in failure.message
