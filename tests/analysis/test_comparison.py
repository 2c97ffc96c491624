"""The verdict on two compared sides: a word and a sentence, by four primary metrics."""

import numpy as np
import pytest
from support.means import means_of

from ragguard.analysis.comparison import questions_needed
from ragguard.analysis.pairs import compare, questions_of
from ragguard.records import Run, Score, ScoredRun

PRIMARY = ("answer_correct", "delta_seper_total", "udcg_context", "coverage_total")


def sides(questions, **gains):
    """Returns two sides: each metric's values before, and after with a gain, or with a list of gains."""
    rng = np.random.default_rng(1)
    before, after = [], []
    bases = {name: rng.uniform(0.3, 0.5, questions) for name in gains}
    for number in range(questions):
        first, second = (Run(f"{side}{number}", f"Who is number {number}?") for side in "ab")
        old = {name: float(base[number]) for name, base in bases.items()}
        new = {
            name: old[name] + float(np.broadcast_to(gain, questions)[number]) for name, gain in gains.items()
        }
        for side, run, values in ((before, first, old), (after, second, new)):
            side.append(ScoredRun(run, [Score(name, value, "run", run.id) for name, value in values.items()]))
    return [questions_of(map(means_of, side)) for side in (before, after)]


def verdict(questions, **gains):
    return compare(*sides(questions, **gains)).verdict


def noise(questions, spread=0.1, mean=0.0, seed=2):
    return np.random.default_rng(seed).normal(mean, spread, questions)


@pytest.mark.parametrize(
    ("gains", "word", "begins"),
    [
        ({"udcg_context": 0.05}, "better", "Better: list quality (udcg_context) +0.050 ("),
        (
            {"udcg_context": -0.05, "coverage_total": 0.0}, "worse",
            "Worse: list quality (udcg_context) -0.050 (",
        ),
        (
            {"udcg_context": 0.05, "coverage_total": -0.1}, "mixed",
            "Mixed: better in list quality (udcg_context) +0.050; worse in coverage_total -0.100, over 20 questions. "
            "0 rose, 20 fell.",
        ),
        (
            {"udcg_context": 0.0, "coverage_total": 0.0}, "identical",
            "Identical: 20 questions with the same 2 scores on both sides.",
        ),
        (
            {"udcg_context": noise(20)}, "undecided",
            "Undecided: no difference is measurable over 20 questions. ",
        ),
        ({"harm": 0.1}, "worse", "Worse: harm +0.100 ("),
        ({"grade": 0.1}, "better", "Better: grade +0.100 ("),
        ({"own_metric": 0.1}, "changed", "Changed: own_metric +0.100 ("),
    ],
)  # fmt: skip
def test_each_verdict_has_its_word_and_sentence(gains, word, begins):
    found = verdict(20, **gains)
    assert found.word == word
    assert found.sentence.startswith(begins)


def test_secondary_metric_does_not_decide_the_verdict():
    found = compare(*sides(20, harm=0.3, udcg_context=noise(20)))
    assert found.verdict.word == "undecided"
    assert [change.metric for change in found.decisive] == ["udcg_context"]


def test_primary_metrics_are_corrected_among_themselves_only():
    gain = noise(20, mean=0.06)
    many = {f"m{number}": noise(20, seed=number + 5) for number in range(40)}
    alone, among = (
        {change.metric: change for change in compare(*sides(20, udcg_context=gain, **more)).changes}
        for more in ({}, many)
    )
    assert among["udcg_context"].p_corrected == alone["udcg_context"].p_corrected
    assert all(change.p_corrected >= change.p for change in among.values())


def test_as_many_questions_as_are_asked_for_are_enough():
    """By simulation: with the difference that was seen, so many questions show it four times in five."""
    few = compare(*sides(12, udcg_context=noise(12, 0.1, 0.05)))
    (change,) = few.changes
    needed = questions_needed(change, 1)
    assert f"About {needed - 12} more questions would be enough" in few.verdict.sentence
    found = 0
    for seed in range(60):
        gain = noise(needed, 1.0, seed=seed) + change.effect
        found += compare(*sides(needed, udcg_context=gain), draws=499).verdict.word == "better"
    assert 0.65 <= found / 60 <= 0.95


def test_too_few_questions_say_how_many_would_do():
    assert "About 4 more questions would be enough" in verdict(2, udcg_context=0.1).sentence
    assert (
        verdict(1, udcg_context=0.1).sentence == "Undecided: no difference is measurable over 1 question."
    ), "one question has no spread by which to say how many more"
    assert "nan" not in verdict(2, udcg_context=[0.1, 0.2]).sentence


def test_a_difference_that_needs_too_many_questions_is_called_too_small():
    gain = noise(30, 0.1)
    gain += 0.0005 - gain.mean()
    assert verdict(30, udcg_context=gain).sentence.endswith("is too small for so few questions.")


def test_sides_without_a_difference_are_called_different_at_the_level():
    wrong = 0
    for seed in range(200):
        gains = {name: noise(9, seed=4 * seed + place) for place, name in enumerate(PRIMARY)}
        wrong += compare(*sides(9, **gains)).verdict.word != "undecided"
    assert wrong / 200 <= 0.1  # 0.05, and three standard errors
