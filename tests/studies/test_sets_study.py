"""Measures of a selection beside the grade of its response."""

import math

import numpy as np
import pytest

from ragguard import connect
from ragguard.engines.layers import Cache
from ragguard.records import Passage
from studies.reasons import ON_NANO
from studies.reports import SEARCHES, Report
from studies.sets import (
    KS,
    Selection,
    correlations,
    data_sets,
    distribution,
    fitted,
    segments,
    select,
    study,
)


class Given(Report):
    """A report whose searches find it in a given order."""

    def ranked(self, error: float, seed: int = 0) -> tuple[int, ...]:
        return tuple(range(len(self.base)))


def base(kinds: str) -> tuple[Passage, ...]:
    """g: relevant, anything else not."""
    return tuple(
        Passage(
            f"{at}", metadata={"kind": "gold" if kind == "g" else "unrelated"}, grade=5 if kind == "g" else 1
        )
        for at, kind in enumerate(kinds)
    )


def selection(
    k: int, n_p: int, grade: float, total: int = 2, ndcg: float = 0.5, report: str = "r"
) -> Selection:
    return Selection(
        report, "fair", tuple(range(k)), k, n_p, n_p, total, ndcg, n_p / min(k, total), 1.0, grade
    )


def test_a_selection_is_counted() -> None:
    found = select(Given("r", (), base("xgxgxxgx")), "fair", 3)
    assert (found.k, found.n_p, found.n_p_2k, found.total) == (3, 1, 2, 3)
    # One relevant passage at rank 2 of a list that holds one.
    assert found.ndcg == pytest.approx(1 / math.log2(3))
    assert found.ra_nwg == pytest.approx(1 / 3)
    # Of the two that the top six hold one was chosen.
    assert found.pct_proc == pytest.approx(1 / 2)
    assert select(Given("r", (), base("xxg")), "fair", 2).ndcg == 0


@pytest.mark.parametrize(
    ("k", "total", "segment"), [(2, 4, 0.5), (2, 3, 0.7), (3, 4, 0.8), (5, 4, 1.0), (10, 4, 2.0)]
)
def test_ratios_keep_their_first_digit(k: int, total: int, segment: float) -> None:
    assert selection(k, 1, 3, total).segment == segment


def test_measures_are_fitted_to_the_grades() -> None:
    group = [selection(2, 0, 1), selection(2, 1, 2), selection(2, 2, 5), selection(4, 2, 4)]
    found = fitted(group, [one.grade for one in group])
    # Recall alone ties the last two; any weight on precision tells them apart, the smallest on the grid will do.
    assert found["F"].alpha == pytest.approx(0.01)
    assert np.argsort(found["F"].values).tolist() == [0, 1, 3, 2]
    assert found["T"].values.tolist() == pytest.approx(
        [
            (1 - found["T"].alpha) * n - found["T"].alpha * (k - n) / k
            for k, n in ((2, 0), (2, 1), (2, 2), (4, 2))
        ]
    )
    assert math.isnan(found["nDCG"].alpha)


def test_grades_are_shares_of_their_segment() -> None:
    group = [selection(2, 1, 5), selection(2, 1, 5), selection(2, 1, 1), selection(4, 1, 3)]
    table = distribution({"x": group}, "m")
    cells = {row[0]: row[1:] for row in table.rows}
    assert table.columns == ("K/N_p", "1", "2")
    assert cells["x: grade 5"] == (pytest.approx(2 / 3), 0)
    assert cells["x: grade 3"] == (0, 1)
    assert cells["x: contexts"] == (3, 1)


def test_narrow_and_wide_stand_apart_and_order_alone_is_seen() -> None:
    narrow = [selection(2, n, grade, total=3, report=f"{n}{grade}") for n, grade in ((0, 1), (1, 2), (2, 3))]
    wide = [selection(4, 2, grade, ndcg=grade / 10, report=f"w{grade}") for grade in (1.0, 3.0, 5.0)]
    table = correlations({"x": narrow + wide})
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert list(rows) == ["x-n", "x-w"]
    assert rows["x-n"]["T"] == pytest.approx(1)
    # All counts are equal: nothing but the order goes with the grade.
    assert rows["x-w"]["T"] == 0
    assert rows["x-w"]["order alone"] == pytest.approx(1)


def test_a_segment_of_one_grade_has_no_correlation() -> None:
    table = segments({"x": [selection(2, n, 5, report=f"{n}") for n in (0, 1, 2)]})
    assert math.isnan(table.rows[0][1])
    assert "–" in table.markdown()


def test_data_sets_have_two_to_four_relevant_passages() -> None:
    sets = data_sets(6, seed=0)
    assert [sum(report.relevant) for report in sets["Parts"]] == [2, 3, 4, 2, 3, 4]
    assert [len(report.parts) for report in sets["Parts"]] == [2, 3, 4, 2, 3, 4]
    assert [sum(report.relevant) for report in sets["Statements"]] == [2, 3, 4, 2, 3, 4]
    assert {sum(report.relevant) for report in sets["Hops"]} == {2}
    assert all(len(report.base) >= max(KS) for group in sets.values() for report in group)


async def test_a_small_study() -> None:
    # What is asked again is answered from memory: the recipe is to ask the same again.
    engine = Cache(connect("nano"))
    tables = await study(engine, questions=1, seed=1)
    assert [table.name for table in tables] == [
        "sets-grades", "sets-correlations", "sets-differences", "sets-segments", "sets-kinds", "sets-alpha",
    ]  # fmt: skip
    known = {name for name in ON_NANO if name.startswith("sets-")}
    assert known <= {table.name for table in tables}
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)
    rows = {row[0]: dict(zip(tables[1].columns, row, strict=True)) for row in tables[1].rows}
    contexts = sum(row["contexts"] for row in rows.values())
    assert contexts == 3 * 1 * len(SEARCHES) * len(KS)
    assert rows["Parts-w"]["F"] > 0.5
    again = await study(engine, questions=1, seed=1)
    assert [table.as_dict() for table in again] == [table.as_dict() for table in tables]
