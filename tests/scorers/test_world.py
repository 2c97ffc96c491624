"""The scores of nano on held-out cases of its world, where it is known which step helped, misled or did nothing."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from ragguard import world
from ragguard.engines.connect import connect
from ragguard.records import Failure, Score
from ragguard.scorers.pipeline import ScoringPipeline

pytestmark = pytest.mark.slow

SERIOUS = 0.3
"""A change of belief of this size is more than the noise of ten answers."""


class Scored:
    """A run and what was said of it."""

    def __init__(self, run, results):
        self.run = run
        self.scores = [result for result in results if isinstance(result, Score)]
        self.failures = [result for result in results if isinstance(result, Failure)]

    def of(self, name, step=None, position=None):
        """The score of that name."""
        (score,) = [
            s
            for s in self.scores
            if s.name == name
            and (step is None or s.step_id == step.id)
            and (position is None or s.position == position)
        ]
        return score

    def steps(self, role):
        """The steps that play a role."""
        return [step for step in self.run.steps if step.metadata["role"] == role]

    @property
    def total(self):
        """What all steps together changed."""
        return self.of("delta_seper_total").value


@pytest.fixture(scope="module")
def nano():
    """One engine, whose cache answers what is asked of the same runs without gold."""
    engine = connect("nano")
    yield engine
    asyncio.run(engine.aclose())


def score_all(engine, runs, scorers=("belief", "utility", "coverage")) -> list[Scored]:
    """Scores the runs, eight at a time: longer batches take less time."""

    async def work():
        pipeline, slots = ScoringPipeline(engine, scorers=scorers), asyncio.Semaphore(8)

        async def score(run):
            async with slots:
                return Scored(run, await pipeline.results(run))

        return await asyncio.gather(*map(score, runs))

    return asyncio.run(work())


@pytest.fixture(scope="module")
def straight(nano):
    """Two hops that find what they need beside a near miss each, and one step that finds nothing of use."""
    cases = world.cases(40, seed=11, hops=2)
    return score_all(
        nano, (world.make_run(case, seed=i, junk=1, useless_steps=1) for i, case in enumerate(cases))
    )


@pytest.fixture(scope="module")
def misled(nano):
    """One hop that finds a falsehood in place of the truth; the answer repeats it."""
    cases = world.cases(40, seed=13, hops=1)
    return score_all(
        nano, (world.make_run(case, seed=i, junk=1, mislead=(1,)) for i, case in enumerate(cases))
    )


@pytest.fixture(scope="module")
def known(nano):
    """Steps that find what nano knows by heart."""
    cases = world.cases(24, seed=14, hops=1, known=True)
    return score_all(nano, (world.make_run(case, seed=i, junk=1) for i, case in enumerate(cases)))


@pytest.fixture(scope="module")
def unreferenced(nano, straight, misled):
    """The same runs without gold: what supports the answer that was given."""
    return score_all(nano, [replace(one.run, references=None) for one in (*straight, *misled)], ["belief"])


def share(hits: Iterable[bool]) -> float:
    """How many of them are so."""
    return float(np.mean([bool(hit) for hit in hits]))


def test_nothing_fails(straight, misled, known):
    runs = [scored for group in (straight, misled, known) for scored in group]
    failures = [failure for scored in runs for failure in scored.failures]
    # Where nano rates no passage of a pool as an answer there is no density, and where it would rather chat
    # than compare two answers there is no belief: said as failures, and rare.
    assert {(f.scorer, f.error) for f in failures} <= {
        ("coverage", "ScoringError"),
        ("belief", "LowLabelMass"),
    }
    assert len(failures) <= 0.02 * len(runs)


def test_gold_steps_beat_useless_ones(straight):
    gold = [sum(s.of("delta_seper", step).value for step in s.steps("gold")) / 2 for s in straight]
    useless = [s.of("delta_seper", step).value for s in straight for step in s.steps("useless")]
    differences = np.array(gold) - np.array(useless)
    assert differences.mean() > 3 * differences.std(ddof=1) / len(differences) ** 0.5
    assert share(s.total >= SERIOUS for s in straight) >= 0.6, (
        "nano answers most two-hop questions from their passages"
    )
    serious = [i for i, s in enumerate(straight) if s.total >= SERIOUS]
    assert share(gold[i] > useless[i] for i in serious) >= 0.9


def test_useless_and_already_known_steps_are_within_two_standard_errors_of_nothing(straight, known):
    useless = [s.of("delta_seper", step) for s in straight for step in s.steps("useless")]
    learnt = [s.of("delta_seper", step) for s in known for step in s.steps("gold")]
    assert (len(useless), len(learnt)) == (40, 24)
    for found in (useless, learnt):
        assert share(abs(score.value) <= 2 * score.stderr for score in found) >= 0.9


def test_hops_one_after_the_other_are_both_useful(straight):
    hops = [(s, step) for s in straight for step in s.steps("gold")]
    assert share(s.of("delta_coverage", step).value > 0 for s, step in hops) >= 0.95
    assert share(s.of("utility", step, gold_at(step)).value > 0 for s, step in hops) >= 0.95, (
        "a bridge is no junk"
    )


def gold_at(step):
    """The position of the step's gold passage."""
    return next(at for at, passage in enumerate(step.passages, 1) if passage.metadata["kind"] == "gold")


def test_support_agrees_with_gold_where_the_answer_is_right(straight, unreferenced):
    pairs = list(zip(straight, unreferenced, strict=False))
    judged = [
        (gold.total, support.total)
        for gold, support in pairs
        if gold.of("answer_correct").label == "correct" and abs(gold.total) >= SERIOUS
    ]
    assert len(judged) >= 20
    assert share(np.sign(gold) == np.sign(support) for gold, support in judged) >= 0.9
    assert all(s.of("delta_seper_total").reference_source == "answer" for _, s in pairs)


def test_a_misled_run_is_recognised_as_such(straight, misled, unreferenced):
    wrong = unreferenced[len(straight) :]
    # nano takes some names for others' (CARD.md, accuracy of A, B, C): 36 of these 40 are told as wrong.
    assert share(s.of("answer_correct").label == "wrong" for s in misled) >= 0.85
    # What misled it supports what it said and not what is true; a straight run is supported in what is true.
    gap = [support.total - gold.total for gold, support in zip(misled, wrong, strict=True)]
    fair = [support.total - gold.total for gold, support in zip(straight, unreferenced, strict=False)]
    assert share(value >= SERIOUS for value in gap) >= 0.9
    assert share(value >= SERIOUS for value in fair) <= 0.15
    false = [
        s.of("utility", step, at).value
        for s in misled
        for step in s.run.steps
        for at, passage in enumerate(step.passages, 1)
        if passage.metadata["kind"] == "contradiction"
    ]
    assert share(value < 0 for value in false) >= 0.95, (
        "the judge sees the references, as the step asked the question"
    )
