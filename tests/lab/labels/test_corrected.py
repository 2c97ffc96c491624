"""Means that labels of people correct: they are those of people, and what cannot be corrected is said."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from support.judged_runs import JUDGE, graded_runs, judged_runs, right_label

from ragguard.errors import InvalidInput
from ragguard.guard.calibration import examples_of
from ragguard.lab.labels.corrected import corrected
from ragguard.lab.labels.items import digest_of, in_order_of_worth, items_of
from ragguard.lab.labels.label_file import Label, agreements, with_labels
from ragguard.metrics.distraction import udcg, utility
from ragguard.records import Passage, RetrievalStep, Run, Score, ScoredRun


def labels_of(items, right, by="ann", **other):
    return [
        Label(
            item.place,
            right_label(item, right),
            by,
            other.get("digest", item.digest),
            other.get("judge", JUDGE),
        )
        for item in items
    ]


def test_with_every_label_the_means_are_those_of_people():
    runs, right = judged_runs()
    items = items_of(runs, "relevance")
    found = corrected(runs, labels_of(items, right)).means
    abstains = np.array([[s.value for s in one.scores if s.name == "p_abstain"] for one in runs])
    u = np.asarray(utility(right.astype(float), abstains))
    assert found["p_relevant"].value == pytest.approx(right.mean())
    assert found["utility"].value == pytest.approx(u.mean())
    # UDCG goes by its slope at the judge's value.
    truth = float(np.mean(udcg(u)))
    assert found["udcg"].value == pytest.approx(truth, abs=0.003)
    assert abs(found["udcg"].raw - truth) > 0.03


def test_intervals_of_forty_labels_hold_what_the_judge_misses():
    held = Counter()
    for seed in range(40):
        runs, right = judged_runs(seed=seed)
        labels = labels_of(in_order_of_worth(items_of(runs, "relevance"), 40, seed), right)
        mean = corrected(runs, labels).means["p_relevant"]
        held["corrected"] += mean.low <= 0.4 <= mean.high
        held["raw"] += abs(mean.raw - 0.4) < 0.05
    assert held["corrected"] >= 34  # 38 expected; 33 or fewer once in a hundred
    assert held["raw"] == 0


def test_grades_that_came_with_the_passages_are_no_judge_s():
    runs, _ = graded_runs()
    for one in runs:
        one.scores = [
            replace(score, label="given") if score.name == "grade" else score for score in one.scores
        ]
    with pytest.raises(InvalidInput, match="grade of a judge"):
        items_of(runs, "grade")


def test_every_beginning_of_the_order_has_the_shares_of_the_strata_and_unsure_items_come_first():
    runs, _ = judged_runs(200)
    items = items_of(runs, "relevance")
    drawn = in_order_of_worth(items, 60, seed=1)
    assert drawn == in_order_of_worth(list(reversed(items)), 60, seed=1)
    assert drawn != in_order_of_worth(items, 60, seed=2)
    assert {item.stratum for item in drawn[:20]} == {item.stratum for item in items}
    whole, chosen = Counter(i.stratum for i in items), Counter(i.stratum for i in drawn)
    share = {one: chosen[one] / whole[one] for one in whole}
    assert min(share[1], share[2]) > share[3]


def test_labels_of_other_texts_judges_and_runs_are_refused():
    runs, right = judged_runs()
    items = in_order_of_worth(items_of(runs, "relevance"), 20)
    with pytest.raises(InvalidInput, match="another one than was labelled"):
        corrected(runs, labels_of(items, right, digest="0" * 16))
    with pytest.raises(InvalidInput, match="label again, or score by that one"):
        corrected(runs, labels_of(items, right, judge="other/1"))
    with pytest.raises(InvalidInput, match=r"`ragguard label ragguard\.db`"):
        corrected(judged_runs(prefix="b")[0], labels_of(items, right))


def test_what_cannot_be_corrected_is_said_and_the_rest_is_corrected():
    runs, right = judged_runs()
    items = items_of(runs, "relevance")
    few = corrected(runs, labels_of(in_order_of_worth(items, 9), right))
    assert not few.means
    assert few.remarks[0] == "p_relevant is not corrected: 9 labels, and 10 are needed"
    same = corrected(runs, [Label(item.place, 1.0, "ann", item.digest, JUDGE) for item in items[:15]])
    assert "p_relevant is not corrected: all 15 labels say the same; label more" in same.remarks
    for one in runs:
        one.scores[0].value = 0.6  # UDCG with another γ
    odd = corrected(runs, labels_of(items[:40], right))
    assert "udcg is not corrected: it was given with settings other than the usual ones" in odd.remarks
    assert set(odd.means) == {"p_relevant", "utility"}


def test_udcg_of_a_judge_that_is_far_off_is_not_corrected_by_its_slope():
    runs, right = judged_runs()
    items = items_of(runs, "relevance")
    found = corrected(
        runs, labels_of(items[:60], 0 * right + (np.arange(right.size).reshape(right.shape) == 7))
    )
    assert "udcg" not in found.means
    assert any("too far apart for its slope" in remark for remark in found.remarks)
    assert found.means["utility"].value < -0.3
    # In doubt, too: the estimate is within the slope's reach, its interval is not.
    few = corrected(runs, labels_of(in_order_of_worth(items, 12, seed=4), right))
    assert "udcg" not in few.means
    assert "udcg" in corrected(runs, labels_of(items, right)).means


def test_skipped_items_may_have_any_label_and_the_interval_says_so():
    runs, right = judged_runs()
    items = in_order_of_worth(items_of(runs, "relevance"), 40)
    plain = labels_of(items, right)
    hard = [label for label in plain if label.value == 1.0][:6]
    given = [replace(label, value=float("nan")) if label in hard else label for label in plain]
    skipped, known = corrected(runs, given), corrected(runs, plain)
    mean, without = skipped.means["p_relevant"], corrected(runs, [one for one in plain if one not in hard])
    assert mean.value == without.means["p_relevant"].value < known.means["p_relevant"].value
    assert mean.labels == 34
    assert mean.high >= known.means["p_relevant"].high
    assert mean.low <= without.means["p_relevant"].low
    assert any("6 items were skipped" in remark for remark in skipped.remarks)
    again = corrected(
        runs, [*given, *(replace(label, by="bob") for label in hard)]
    )  # whom somebody else labelled
    assert again.means["p_relevant"].value == known.means["p_relevant"].value
    assert not any("skipped" in remark for remark in again.remarks)


def test_runs_that_began_after_the_draw_are_left_out_and_a_second_draw_has_strata_of_its_own():
    old, right = judged_runs(rate=0.6)
    new, right_of_new = judged_runs(prefix="b", rate=0.1, seed=1)
    new = [replace(one, run=replace(one.run, question=f"new {one.run.question}")) for one in new]
    for at, one in enumerate([*old, *new]):
        one.run.started_ns = at + 1
    first = [
        replace(label, drawn_ns=60)
        for label in labels_of(in_order_of_worth(items_of(old, "relevance"), 30), right)
    ]
    grown = corrected([*old, *new], first)
    assert grown.means["p_relevant"] == corrected(old, first).means["p_relevant"]
    assert any("60 of 120 runs began after the labels were drawn" in remark for remark in grown.remarks)
    second = [
        replace(label, drawn_ns=200)
        for label in labels_of(in_order_of_worth(items_of(new, "relevance"), 30), right_of_new)
    ]
    both = corrected([*old, *new], [*first, *second])
    mean = both.means["p_relevant"]
    assert mean.low < (right.mean() + right_of_new.mean()) / 2 < mean.high
    assert not any("began after" in remark for remark in both.remarks)


def test_two_people_are_averaged_and_their_agreement_is_told():
    runs, right = judged_runs()
    items = in_order_of_worth(items_of(runs, "relevance"), 30)
    ann, bob = labels_of(items, right), labels_of(items, 1 - right, by="bob")
    assert (
        agreements([*ann, *labels_of(items, right, by="bob")])[0]
        == "ann and bob both labelled 30 items: κ 1.00"
    )
    found = corrected(runs, [*ann, *bob[:15]])
    assert any("ann and bob both labelled 15 items: κ -" in remark for remark in found.remarks)
    assert found.means["p_relevant"].labels == 30


def test_coverage_is_that_of_people_and_of_the_passages_that_the_model_got():
    runs, right = [], np.random.default_rng(3).random((30, 2)) < 0.5
    for at in range(len(right)):
        name, got = f"r{at}", Passage("got")
        step = RetrievalStep(id="s", run_id=name, query="q", passages=[got], candidates=[Passage("cut"), got])
        ratings = [5 if at % 3 else 1, 3]  # the judge errs
        scores = [Score("coverage_total", sum(one >= 3 for one in ratings) / 2, "run", name, engine=JUDGE)]
        for number, rating in enumerate(ratings):
            for position, value in ((1, 5), (2, rating)):
                scores.append(Score(
                    "answerability", value, "passage", name, "s", position=position, sub_question=number,
                    explanation=f"sub-question {number} of {at}", engine=JUDGE,
                ))  # fmt: skip
        runs.append(ScoredRun(Run(id=name, question=f"question {at}?", steps=[step]), scores))
    items = items_of(runs, "coverage")
    assert items[0].text == "got"
    assert items[0].judged == 0.2
    labels = labels_of(items, right)
    found = corrected(runs, labels).means["coverage_total"]
    assert found.value == pytest.approx(right.mean())
    assert found.raw == pytest.approx((20 + 30) / 60)
    for one in runs:
        one.scores[0].value = 0.1
    assert any("coverage_total is not corrected" in remark for remark in corrected(runs, labels).remarks)


def test_calibrations_see_what_people_said_and_nothing_else():
    runs, right = judged_runs(3)
    items = items_of(runs, "relevance")
    for one in runs:
        one.run.steps[0].passages[0].metadata["gold"] = True
        one.run.answer = "Ada"
    answer = Label(("answer", "r0", "", 0), 1.0, "ann", digest_of("answer", "question 0?", "Ada"), JUDGE)
    told = [*with_labels((one.run for one in runs), [*labels_of(items[:-1], right), answer])]
    found = [example for run in told for example in examples_of(run.steps)]
    assert [example.gold for example in found] == [
        list(row) for row in right[:2]
    ]  # one passage of the third is open
    assert [run.references for run in told] == [["Ada"], None, None]
    with pytest.raises(InvalidInput, match="another one than was labelled"):
        [*with_labels((one.run for one in runs), labels_of(items, right, digest="0"))]
