"""Labels of people beside a judge's, by hand and beside scikit-learn."""

import json
import math

import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score, precision_score, recall_score

from ragguard.analysis.validation.people import coverages, fleiss, tables
from ragguard.analysis.validation.readers.labels import Labelled, is_labels, read_labels
from ragguard.errors import InvalidInput


def lines(path, *objects):
    path.write_text("".join(json.dumps(one) + "\n" for one in objects), encoding="utf-8")
    return path


LINE = {"context": "r1", "item": "q1", "judge": 4, "labels": {"ann": 5, "bob": 2}, "system": "bm25"}
# context → items of (judge, ann, bob)
GIVEN = {
    "r1": [(5, 5, 4), (4, 3, 2), (0, 1, 0), (1, 4, 3)],
    "r2": [(2, 1, 0), (3, 4, 5), (0, 0, 1), (0, 2, 2)],
    "r3": [(5, 5, 5), (5, 4, 4), (3, 3, 3), (1, 2, 3)],
}
ITEMS = [
    Labelled(context, f"q{number}", judge, {"ann": ann, "bob": bob})
    for context, rows in GIVEN.items()
    for number, (judge, ann, bob) in enumerate(rows)
]
FLAT = [row for rows in GIVEN.values() for row in rows]


def row_of(table, name):
    (row,) = [row for row in table.rows if row[0] == name]
    return dict(zip(table.columns, row, strict=True))


def test_items_are_compared_as_scikit_learn_compares_them():
    rows = {row[0]: row for row in tables(ITEMS)[0].rows}
    judge, ann = ([row[at] >= 3 for row in FLAT] for at in (0, 1))
    _, precision, recall, no_precision, no_recall, kappa, graded, n = rows["ann"]
    assert precision == pytest.approx(precision_score(ann, judge))
    assert recall == pytest.approx(recall_score(ann, judge))
    assert no_precision == pytest.approx(precision_score(ann, judge, pos_label=False))
    assert no_recall == pytest.approx(recall_score(ann, judge, pos_label=False))
    assert kappa == pytest.approx(cohen_kappa_score(ann, judge))
    by_grade = cohen_kappa_score(
        [row[0] for row in FLAT], [row[1] for row in FLAT], weights="quadratic", labels=range(6)
    )
    assert graded == pytest.approx(by_grade)
    assert n == 12


def test_coverage_is_the_share_of_answered_items_of_a_context():
    judge, person = coverages(ITEMS, "bob", 3)
    assert judge.tolist() == [0.5, 0.25, 0.75]
    assert person.tolist() == [0.5, 0.25, 1.0]
    together = coverages(ITEMS, "all raters", 3)[1]
    assert together.tolist() == [pytest.approx((0.75 + 0.5) / 2), 0.25, pytest.approx((0.75 + 1) / 2)]
    row = row_of(tables(ITEMS)[1], "bob")
    assert row["Spearman's ρ"] == pytest.approx(stats.spearmanr(judge, person).statistic)
    assert (row["coverage by people"], row["by the judge"]) == (pytest.approx(7 / 12), 0.5)
    assert row["judge − people"] == pytest.approx(-1 / 12)
    assert row["mean absolute difference"] == pytest.approx(1 / 12)


def test_a_difference_with_a_sign_says_which_way_the_judge_errs():
    items = [
        Labelled(context, f"q{number}", judge, {"ann": ann})
        for context, rows in {"r1": [(5, 5), (5, 0)], "r2": [(0, 5), (5, 5)], "r3": [(5, 0), (0, 0)]}.items()
        for number, (judge, ann) in enumerate(rows)
    ]
    row = row_of(tables(items)[1], "ann")
    assert row["judge − people"] == pytest.approx((0.5 - 0.5 + 0.5) / 3)
    assert row["mean absolute difference"] == pytest.approx(0.5)


def test_people_agree_among_themselves_by_fleiss():
    kappa, n, raters = fleiss(ITEMS, 3)
    assert (n, raters) == (12, 2)
    # Two raters agree on 10 of 12 items; of 24 labels 14 say answered.
    by_chance = (14 / 24) ** 2 + (10 / 24) ** 2
    assert kappa == pytest.approx((10 / 12 - by_chance) / (1 - by_chance))
    assert fleiss([Labelled("r", "q", 1, {"ann": 1})], 1) is None


def test_a_rater_counts_where_there_are_labels_of_theirs():
    items = [*ITEMS, Labelled("r4", "q0", 5, {"cid": 5}), Labelled("r4", "q1", 0, {"cid": 0})]
    rows = {row[0]: row for row in tables(items)[1].rows}
    assert rows["ann"][-1] == 3
    assert rows["cid"][-1] == 1
    assert math.isnan(row_of(tables(items)[1], "cid")["Spearman's ρ"])
    assert rows["all raters"][-1] == 4


def test_yes_and_no_need_no_threshold():
    items = [
        Labelled(f"r{n}", f"q{m}", float((n + m) % 2), {"ann": float(n % 2)})
        for n in range(4)
        for m in range(2)
    ]
    first = tables(items)[0]
    assert "1 or more" in first.notes[0]
    assert {row[6] for row in first.rows} == {None}


def test_systems_have_a_table_where_there_are_several():
    items = [Labelled(c, f"q{n}", j, {"ann": a}, "x" if c == "r1" else "y") for c, rows in GIVEN.items()
             for n, (j, a, _) in enumerate(rows)]  # fmt: skip
    assert [table.name for table in tables(items)] == ["people-items", "people-coverage", "people-systems"]
    assert [row[0] for row in tables(items)[2].rows] == ["x", "y"]


def test_lines_are_read(tmp_path):
    path = lines(tmp_path / "l.jsonl", LINE)
    assert is_labels(path)
    assert read_labels(path) == [Labelled("r1", "q1", 4, {"ann": 5, "bob": 2}, "bm25")]
    (only,) = read_labels(lines(path, LINE | {"judge": True, "labels": {"ann": False}}))
    assert (only.judge, only.labels) == (1, {"ann": 0})


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"judge": None}, "judge: .*missing"),
        ({"judge": "yes"}, "judge: .*a number"),
        ({"labels": {}}, "labels: .*at least one"),
        ({"labels": [5, 2]}, "labels: .*at least one"),
        ({"labels": {"ann": None}}, "labels, ann: .*leave the rater out"),
        ({"labels": {"ann": "5"}}, "labels, ann: .*a number"),
        ({"judge": True}, "labels: .*as in the first line"),
        ({"judge": False, "labels": {"ann": True}}, "labels: .*as in the first line"),
        ({"rater": "ann"}, "rater: .*no field of that name"),
        ({"context": None}, "context: .*missing"),
        ({"item": "q1"}, "item: .*it is there twice"),
    ],
)
def test_wrong_line_of_a_label_file_is_named(tmp_path, changed, told):
    with pytest.raises(InvalidInput, match=f"line 2, {told}"):
        read_labels(lines(tmp_path / "l.jsonl", LINE, LINE | {"item": "q2"} | changed))


@pytest.mark.parametrize("threshold", [0, 6, -1])
def test_a_threshold_that_parts_nothing_is_refused(threshold):
    with pytest.raises(InvalidInput, match="threshold"):
        tables(ITEMS, threshold=threshold)
