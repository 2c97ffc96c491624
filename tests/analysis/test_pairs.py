"""Comparisons: paired by question, honest about noise, corrected for many metrics."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from support.means import means_of

from ragguard.analysis.cause_tables import cause_changes, change_table
from ragguard.analysis.gate_check import hold, parsed
from ragguard.analysis.pairs import compare, questions_of
from ragguard.errors import InvalidInput, UnknownName
from ragguard.records import Passage, RetrievalStep, Run, Score, ScoredRun


def side(values, name="udcg", **fields):
    """One run a question, with one score."""
    runs = []
    for index, value in enumerate(values):
        run = Run(question=f"Who is number {index}?", steps=[RetrievalStep(passages=[Passage("x")] * 2)])
        runs.append(ScoredRun(run, [Score(name, value, "step", run.id, run.steps[0].id, **fields)]))
    return runs


def compared(a, b, **settings):
    return compare(questions_of(map(means_of, a)), questions_of(map(means_of, b)), **settings)


def test_a_real_difference_is_found_with_its_sign():
    rng = np.random.default_rng(0)
    base = rng.normal(0.5, 0.05, 60)
    (change,) = compared(side(base), side(base + rng.normal(0.03, 0.02, 60))).changes
    assert change.difference == pytest.approx(0.03, abs=0.01)
    assert change.low > 0
    assert change.p_corrected < 0.01
    assert (change.verdict, change.questions) == ("better", 60)


def test_an_interval_stays_in_what_the_metric_can_differ_by():
    """The interval of a share was once −0.25 to +1.75."""
    (change,) = compared(side([0.0] * 8, "coverage"), side([0.0, 0.0] + [1.0] * 6, "coverage")).changes
    assert (change.difference, change.high) == (0.75, 1.0)
    assert change.low >= -1


def test_gold_and_support_are_never_mixed():
    a = side([0.1, 0.2], "delta_seper", reference_source="gold")
    b = side([0.9, 0.9], "delta_seper", reference_source="answer")
    with pytest.raises(
        InvalidInput, match=r"delta_seper and delta_seper\.support.*at least one metric in common"
    ):
        compared(a, b)


def test_before_and_after_the_guard_are_two_series():
    runs = side([0.5], "udcg")
    step = runs[0].run.steps[0]
    runs[0].scores.append(Score("udcg", 0.4, "step", runs[0].run.id, step.id, stage="candidates"))
    assert {series.title for series in questions_of(map(means_of, runs)).values} == {
        "udcg",
        "udcg.candidates",
    }


def test_questions_are_paired_by_their_normalised_text():
    a, b = side([0.1, 0.2, 0.3]), side([0.1, 0.2])
    b[0].run.question = "  who is NUMBER 0"
    found = compared(a, b)
    assert (found.paired, found.only_before, found.only_after) == (2, 1, 0)


def test_questions_that_fell_are_named_once_with_all_metrics_in_which_they_did_the_worst_first():
    names = ["udcg", "coverage"]
    a, b = [], []
    for place, name in enumerate(names):
        a += side([0.5] * 8, name)
        b += side(
            [
                0.5 - (place + 1) * 0.1 * (index == 3) - 0.02 * (index == 5) - 0.019 * (index == 6)
                for index in range(8)
            ],
            name,
        )
    found = compared(a, b)
    assert [fallen.question for fallen in found.fell] == ["Who is number 3?", "Who is number 5?"]
    assert {move.metric for move in found.fell[0].moves} == set(names)
    assert [one["moves"][0]["before"] for one in found.as_dict()["fell"]] == [0.5, 0.5]
    assert not found.identical


def test_a_question_that_fell_in_one_number_and_rose_in_another_is_listed_once_among_those_that_fell():
    a, b = side([0.5] * 8, "udcg"), side([0.6, 0.7, *[0.5] * 6], "udcg")
    a, b = a + side([0.5] * 8, "coverage"), b + side([0.3, 0.5, *[0.5] * 6], "coverage")
    found = compared(a, b)
    assert [one.question for one in found.fell] == ["Who is number 0?"]
    assert [(move.metric, move.better) for move in found.fell[0].moves] == [
        ("coverage", False),
        ("udcg", True),
    ]
    assert [one.question for one in found.rose] == ["Who is number 1?"]
    assert found.about_fell == "1 of 8 questions fell by 0.02 or more, 1 of them rose in another number"


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_float_noise_is_no_difference(scale):
    base = np.random.default_rng(5).uniform(0.2, 0.8, 60) * scale
    noise = np.where(np.arange(60) % 2, 1e-9, 0.0) * scale
    found = compared(side(base), side(base + noise))
    (change,) = found.changes
    assert (change.difference, change.p_corrected, change.verdict) == (0.0, 1.0, "not decisive")
    assert found.identical
    assert not holds_in("udcg > 0", found)


def many(count, questions, *, clear=0):
    """Two sides with that many metrics of noise, of which the first `clear` are higher after."""
    rng = np.random.default_rng(3)
    a, b = [], []
    for number in range(count):
        base = rng.normal(0, 1, questions)
        gain = 2.0 if number < clear else 0.0
        a += side(base, f"m{number:02}")
        b += side(base + rng.normal(gain, 0.5, questions), f"m{number:02}")
    return a, b


@pytest.mark.parametrize("settings", [{}, {"draws": 3000}])
def test_a_clear_difference_is_found_among_sixty_metrics(settings):
    changes = compared(*many(60, 40, clear=2), **settings).changes
    assert [change.metric for change in changes if change.verdict == "changed"] == ["m00", "m01"]
    assert {change.verdict for change in changes[2:]} == {"not decisive"}
    assert changes[0].p_corrected < 0.025


def test_the_meaning_of_p_is_a_sentence():
    sixty = compared(*many(60, 40, clear=2)).about_p
    assert "for all 60 metrics together" in sixty
    assert "at most one of 20 comparisons" in sixty
    assert "for one metric" in compared(*many(1, 40)).about_p


def test_five_questions_are_too_few_and_eight_are_enough_however_many_metrics_there_are():
    changes = compared(*many(7, 5, clear=2)).changes  # the least p of 5 questions is 1 / 16
    assert {change.verdict for change in changes} == {"too few questions"}
    changes = compared(*many(7, 8, clear=2)).changes
    assert [change.verdict for change in changes] == ["changed"] * 2 + ["not decisive"] * 5


def test_a_metric_on_few_questions_is_corrected_for_those_that_are_less_clear_alone():
    a, b = many(2, 40, clear=2)
    few = [side([value] * 6, "few") for value in (0.1, 0.2)]
    noise = side([0.1] * 6, "few"), side([0.2, 0.0, 0.1, 0.2, 0.2, 0.2], "few")
    for first, second, verdict in ((*few, "changed"), (*noise, "not decisive")):
        found = compared(a + first, b + second).changes
        assert next(change.verdict for change in found if change.metric == "few") == verdict


def test_a_change_of_the_judge_is_told_apart_from_a_change_of_the_retrieval():
    a = side([0.1, 0.2], engine="nano:1", prompts="nano/1") + side([1, 1], "coverage", engine="nano:1")
    b = side([0.1, 0.2], engine="vllm:2", prompts="default/1") + side([1, 1], "coverage", engine="nano:1")
    assert compared(a, a).notes == []
    (note,) = compared(a, b).notes
    assert "the judge's: udcg. udcg: nano:1, nano/1,  ; vllm:2, default/1,  ." in note


def test_an_endless_effect_is_no_number_of_json():
    found = compared(side([0.1] * 20), side([0.6] * 20))
    assert (found.changes[0].effect, found.changes[0].verdict) == (np.inf, "better")
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["changes"][0]["effect"] is None


def holds_in(text, found):
    """Whether a condition holds for the difference that it is about."""
    compared = {change.metric: (change.difference, change.low, change.high) for change in found.changes}
    return not hold(parsed(text), compared, "metrics").passed


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("udcg < -0.02 strict", True), ("udcg<-.5", False), ("udcg >= -1e-1", True), ("udcg > 0", False),
        ("udcg < -0.02", False),  # two questions bound nothing
    ],
)  # fmt: skip
def test_conditions(text, holds):
    assert holds_in(text, compared(side([0.5, 0.6]), side([0.4, 0.5]))) is holds


def test_a_condition_holds_only_if_the_difference_is_no_chance():
    base = np.linspace(0.4, 0.6, 12)
    noise = np.random.default_rng(4).normal(0, 0.1, 12)
    noise -= noise.mean() + 0.03
    chance, clear = (
        compared(side(base), side(base + noise)),
        compared(side(base), side(base + noise / 20 - 0.03)),
    )
    assert not holds_in("udcg < -0.02", chance)
    assert holds_in("udcg < -0.02 strict", chance)
    assert holds_in("udcg < -0.02", clear)
    gap = {"udcg": (-0.03, -0.09, 0.03)}
    assert "udcg < -0.02 may hold by chance" in str(hold(parsed("udcg < -0.02"), gap, ""))
    assert not hold(parsed("udcg < 0.02"), gap, "").passed, "a bound that asks for a gain is not met by none"


@pytest.mark.parametrize("questions", [6, 20, 60])
def test_a_gate_on_sides_that_do_not_differ_fails_at_the_level(questions):
    rng, failed = np.random.default_rng(questions), 0
    for _ in range(200):
        before, after = (rng.normal(0.5, 0.2, questions) for _ in range(2))
        failed += holds_in("udcg < -0.01", compared(side(before), side(after), draws=199))
    assert failed / 200 <= 0.06  # 0.025, and three standard errors


def test_questions_without_a_value_on_the_new_side_are_counted_and_fail_a_gate():
    before, after = side(np.linspace(0.4, 0.6, 24)), side(np.linspace(0.4, 0.6, 24))
    for run in after[16:]:
        run.scores = []
    found = compared(before, after)
    assert found.verdict.word == "undecided"
    assert found.verdict.sentence.startswith(
        "Undecided: no difference is measurable over 16 of 24 questions; 8 have no score on the new side."
    )
    gaps = {change.metric: (change.difference, change.low, change.high) for change in found.changes}
    lost = {change.metric: change.lost for change in found.changes}
    checked = hold(parsed("udcg < -0.02"), gaps, "", lost)
    assert not checked.passed
    assert "8 questions have no udcg on the new side" in str(checked)


def test_places_without_a_passage_do_not_make_a_side_worse():
    """Two more harmless passages lower UDCG, and say nothing of the answers."""
    before, after = side([0.6] * 20), side([0.55] * 20)
    for run in after[:15]:
        run.run.steps[0].passages += [Passage("y")] * 2
    found = compared(before, after)
    assert (found.changes[0].questions, found.changes[0].lost) == (5, 0)
    assert any(
        "on 15 of 20 questions with another K these are not compared: udcg." in one for one in found.notes
    )
    for run in after[15:]:
        run.run.steps[0].passages += [Passage("y")] * 2
    found = compared(before, after)
    assert (found.changes, found.refused) == ([], ["udcg"])
    assert (
        found.verdict.sentence == "Undecided: K differs, so that no metric can be compared over 20 questions."
    )


def test_a_share_of_right_answers_that_differs_beside_a_mean_that_is_not_decisive_is_explained():
    came = {str(number): Counter(right=1) for number in range(9)}
    causes = cause_changes({question: Counter(misled=1) for question in came}, came, came)
    once, thirty = (
        replace(
            compared(side([0.0] * 9, "answer_correct"), side([1.0] * 9, "answer_correct"), looks=looks),
            causes=causes,
        )
        for looks in (1, 30)
    )
    assert once.about_right == ""
    assert (
        "answer_correct is called not decisive, and the share of right answers differs" in thirty.about_right
    )
    (note,) = change_table(causes, thirty.about_right).notes
    assert note.endswith("these shares differ: right, misled." + thirty.about_right)


def test_looks_share_the_level():
    base = np.linspace(0.4, 0.6, 20)
    gain = np.random.default_rng(1).normal(0.022, 0.05, 20)
    once, thirty = (compared(side(base), side(base + gain), looks=looks).changes[0] for looks in (1, 30))
    assert thirty.p_corrected == pytest.approx(30 * once.p_corrected)
    assert (once.verdict, thirty.verdict) == ("better", "not decisive")
    assert thirty.low < once.low < once.high < thirty.high


@pytest.mark.parametrize("text", [None, 7, "", "udcg", "udcg < ", "udcg = 3", "udcg < x", "< 3"])
def test_a_condition_that_cannot_be_read_is_refused(text):
    with pytest.raises(InvalidInput, match="fail-if"):
        parsed(text)


def both_levels(step, run):
    """Runs with a score of one name for their step and another for themselves."""
    runs = side([step] * 8, "contested")
    for item in runs:
        item.scores.append(Score("contested", run, "run", item.run.id))
    return runs


def test_series_of_one_name_are_told_apart_by_their_level():
    found = compared(both_levels(0.1, 0.1), both_levels(0.1, 0.6))
    assert {change.metric: round(change.difference, 9) for change in found.changes} == {
        "contested.step": 0.0,
        "contested.run": 0.5,
    }
    assert {change.verdict for change in found.changes} == {"not decisive", "worse"}
    assert holds_in("contested.run > 0.1", found)
    assert not holds_in("contested.step > 0.1", found)


def test_a_condition_that_may_mean_several_series_is_refused_with_their_names():
    found = compared(both_levels(0.1, 0.1), both_levels(0.1, 0.6))
    with pytest.raises(UnknownName, match=r"contested\.run, contested\.step"):
        holds_in("contested > 0.1", found)


def test_scores_with_and_without_references_are_one_series():
    before, after = side([0.5] * 8), side([0.7] * 8)
    after[:3] = side([0.7] * 3, reference_source="gold")
    found = compared(before, after)
    (change,) = found.changes
    assert (change.metric, change.questions, change.difference) == ("udcg", 8, pytest.approx(0.2))
    assert holds_in("udcg > 0.1", found)
