"""An open run is scored with what is known so far; its end asks only what needs the end, and says the same as ever."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, get_args

import pytest
from support.reader import FALSE, FIRM, FIRM_QUERY, FOUNDER, FOUNDER_QUERY, NEAR, NOISE, reader, run, step

from ragguard.engines.connect import connect
from ragguard.records import Score
from ragguard.scorers.catalogue import USUAL
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.scorer import Live


def whole(**more):
    return run(
        step(FIRM_QUERY, [FIRM], candidates=[NEAR, FIRM]),
        step(FOUNDER_QUERY, [NOISE, FOUNDER]),
        step(FOUNDER_QUERY, [FALSE, FOUNDER]),
        **more,
    )


def until(ended, steps):
    """The run as it stood after so many steps."""
    return replace(ended, steps=ended.steps[:steps], status="open", answer=None)


def pipeline(engine, **more):
    return ScoringPipeline(connect(engine), **{"scorers": (*USUAL, "grades"), **more})


def prompts_of(engine):
    """Each prompt that reached the engine, and whether answers to it were drawn."""
    return [(call.verb, call.n, prompt) for call in engine.calls for prompt in call.prompts]


def scores(results):
    return {
        one.key: (one.value, one.stderr, one.label, one.explanation, one.metadata)
        for one in results
        if isinstance(one, Score)
    }


async def test_a_step_has_its_scores_before_the_run_has_ended_and_they_say_that_they_are_provisional():
    live = pipeline(reader())
    found = [one for kind in get_args(Live) for one in await live.results_so_far(until(whole(), 1), kind)]
    assert all(isinstance(one, Score) and one.provisional for one in found)
    assert {
        "utility", "udcg", "coverage", "redundancy", "grade", "seper", "delta_seper", "delta_seper_alone",
        "semantic_entropy", "delta_semantic_entropy", "contested",
    } <= {one.name for one in found}  # fmt: skip
    assert not {"answer_correct", "answer_coverage", "response_grade"} & {one.name for one in found}
    assert not any(one.provisional for one in await pipeline(reader()).results(whole()))


@pytest.mark.parametrize("references", [("Ada Berg",), None])
async def test_prompts_of_the_open_run_are_asked_once_and_none_in_vain(references):
    ended = whole(references=references)
    alone = reader()
    expected = await pipeline(alone).results(ended)
    engine = reader()
    live = pipeline(engine)
    for steps in (1, 2, 3):
        for kind in get_args(Live):
            await live.results_so_far(until(ended, steps), kind)
    before = prompts_of(engine)
    final = await live.results(ended)
    asked = prompts_of(engine)
    assert len(asked) == len(set(asked))
    assert set(asked) == set(prompts_of(alone))
    # Belief in the run's own answer, and its ratings, need the end; with references only the ratings and the verdict.
    assert 0 < len(asked) - len(before) < len(before) / 2
    assert scores(final) == scores(expected)


async def test_without_references_entropy_is_told_and_support_waits_for_the_answer():
    ended = whole(references=None)
    found = await pipeline(reader(), scorers=["belief"]).results_so_far(
        replace(ended, status="open"), "so far"
    )
    assert {one.name for one in found} == {"semantic_entropy", "delta_semantic_entropy"}
    assert {one.reference_source for one in found} == {"none"}
    ends = await pipeline(reader(), scorers=["belief"]).results(ended)
    assert {one.reference_source for one in ends} == {"none", "answer"}


async def test_parallel_steps_that_end_one_after_the_other_ask_nothing_that_the_whole_turn_does_not():
    ended = whole(turns=(0, 1, 1))
    alone, engine = reader(), reader()
    await pipeline(alone).results(ended)
    live = pipeline(engine)
    for steps in ((0,), (0, 2), (0, 1, 2)):
        open_run = replace(ended, steps=[ended.steps[at] for at in steps], status="open", answer=None)
        for kind in get_args(Live):
            await live.results_so_far(open_run, kind)
    await live.results(ended)
    assert sorted(map(repr, prompts_of(engine))) == sorted(map(repr, prompts_of(alone)))


@dataclass(frozen=True)
class CountsSteps:
    name: ClassVar[str] = "steps"
    version: ClassVar[str] = "1"

    async def score(self, view, ask):
        return [Score("steps", len(view.steps), "run", view.run.id)]


class CountsThemLive(CountsSteps):
    name = "live steps"
    live = "so far"


async def test_a_scorer_of_the_users_waits_for_the_end_unless_it_says_otherwise():
    mine = pipeline(reader(), scorers=[CountsSteps(), CountsThemLive()])
    assert [one.scorer for one in await mine.results_so_far(until(whole(), 2), "so far")] == ["live steps"]
    assert {one.scorer for one in await mine.results(whole())} == {"steps", "live steps"}
    assert [one.name for one in mine.live_scorers("at once")] == []
