"""Scoring one run needs settings and a pipeline alone; faults are failures, and wrong settings are refused."""

import asyncio
import math
import pickle

import pytest
from support.reader import reader, two_hops
from support.scripted_pipeline import ScriptedPipeline

from ragguard import connect
from ragguard.errors import EngineUnreachable, InvalidInput
from ragguard.records import Run, Score
from ragguard.scorers import Belief, Contested, Coverage, Grades, Utility
from ragguard.scorers.answers import Answers
from ragguard.scorers.pipeline import ScoringPipeline, evaluate
from ragguard.scorers.settings import ScoringSettings


async def test_a_run_is_scored_by_settings_that_were_pickled():
    """Another process, or another machine, builds the same pipeline from them."""
    run, settings = two_hops(), ScoringSettings(scorers=("utility",), budget={"requests": 500})
    found = []
    for one in (settings, pickle.loads(pickle.dumps(settings))):
        pipeline = one.build()
        scored = await evaluate(run, pipeline.results(run))
        await pipeline.aclose()
        found.append([(score.key, score.value) for score in scored.scores])
        assert scored.failures == []
        assert 0 < scored.started_ns <= scored.ended_ns
    assert found[0]
    assert found[0] == found[1]


@pytest.mark.parametrize("error", [EngineUnreachable("nothing answers"), ZeroDivisionError("a scorer's own")])
def test_error_of_a_pipeline_is_a_failure(error):
    def fault(run):
        raise error

    run = Run("r1")
    scored = asyncio.run(evaluate(run, ScriptedPipeline(fault=fault).results(run)))
    [failure] = scored.failures
    assert (scored.scores, failure.error, failure.run_id) == ([], type(error).__name__, "r1")
    assert failure.will_retry == isinstance(error, EngineUnreachable)


def test_score_that_is_no_number_is_a_failure():
    class Own:
        name, version = "own", "1"

        async def score(self, view, ask):
            return Score("seen", math.nan, "run", "r")

    (failure,) = asyncio.run(ScoringPipeline(reader(), scorers=[Own()]).results(two_hops()))
    assert (failure.error, failure.message) == ("NotFinite", "seen came out as nan")


@pytest.mark.parametrize(
    "wrong", [{"scorers": "utility"}, {"scorers": 3}, {"caps": 20}, {"budget": {"tokns": 3}}], ids=str
)
def test_wrong_settings_are_refused_when_they_are_made(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        ScoringSettings(**wrong)


async def test_closing_the_pipeline_closes_what_was_made_for_it_alone():
    given = connect("nano")
    closed = []
    given.aclose = lambda: closed.append(given)  # type: ignore[method-assign]
    pipeline = ScoringSettings(engine=given, scorers=("utility",)).build()
    await pipeline.aclose()
    assert closed == []


WRONG = [
    (Belief, "samples", 0), (Belief, "samples", 2.5), (Belief, "tau", 1.1), (Belief, "tau", -0.1),
    (Belief, "tau", math.nan), (Belief, "tau", "0.5"), (Belief, "tau", True), (Belief, "equivalence", "x"),
    (Belief, "match", "x"), (Belief, "weights", "x"), (Belief, "kernel", None), (Belief, "over_references", "x"),
    (Belief, "over_references", ["best"]), (Belief, "selection", 1), (Utility, "relevance", "x"),
    (Utility, "gamma", 5), (Coverage, "eta", 6), (Coverage, "alpha", 2),
    (Coverage, "w", -1), (Coverage, "w", math.inf), (Contested, "eta", -1), (Contested, "tau", 2),
    (Grades, "alpha", -1), (Grades, "t_alpha", 2), (Answers, "tau", 2),
]  # fmt: skip


@pytest.mark.parametrize(("scorer", "name", "value"), WRONG)
def test_a_setting_that_cannot_be_right_is_refused_by_name(scorer, name, value):
    with pytest.raises(InvalidInput, match=rf"{scorer.__name__}\.{name}"):
        scorer(**{name: value})
