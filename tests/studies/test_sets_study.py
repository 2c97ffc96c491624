"""Measures of a selection beside the grade of its response."""

import json
import math

import pytest
from support.rows import rows_of

from ragguard import connect
from ragguard.engines.layers import Cache
from ragguard.records import Passage
from studies.missing_five import missing_five
from studies.page import kept_results
from studies.reports import SEARCHES, Report
from studies.selections import Selection, Selections
from studies.sets import KS, data_sets, order_alone, select, study


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


def test_a_selection_is_counted() -> None:
    found = select("x", Given("r", (), base("xgxgxxgx")), "fair", 3).selection
    assert (found.k, found.n_p, found.n_p_2k, found.total) == (3, 1, 2, 3)
    # One relevant passage at rank 2: of a list that holds one, and of three places that three could fill.
    assert found.values["nDCG@K of the list"] == pytest.approx(1 / math.log2(3))
    assert found.values["nDCG@K"] == pytest.approx(1 / math.log2(3) / (1 + 1 / math.log2(3) + 1 / 2))
    assert found.values["RA-nWG"] == pytest.approx(1 / 3)
    # Of the two that the top six hold one was chosen.
    assert found.values["%PROC"] == pytest.approx(1 / 2)
    assert select("x", Given("r", (), base("xxg")), "fair", 2).selection.values["nDCG@K"] == 0


def test_order_alone_is_seen() -> None:
    """All counts are equal: nothing but the order goes with the grade."""
    graded = [
        (Selection(data="x", search="fair", question=f"{grade}", k=4, n_p=2, total=2, values={"nDCG@K": grade / 10}),
         grade)
        for grade in (1.0, 3.0, 5.0)
    ]  # fmt: skip
    (row,) = order_alone(Selections.of(graded)).rows
    assert row[:2] == ("x-w", pytest.approx(1))
    (swapped,) = order_alone(Selections.of([(one, 6 - grade) for one, grade in graded])).rows
    assert swapped[1] == pytest.approx(-1)


def test_data_sets_have_two_to_four_relevant_passages() -> None:
    sets = data_sets(6, seed=0)
    assert [sum(report.relevant) for report in sets["Parts"]] == [2, 3, 4, 2, 3, 4]
    assert [len(report.parts) for report in sets["Parts"]] == [2, 3, 4, 2, 3, 4]
    assert [sum(report.relevant) for report in sets["Statements"]] == [2, 3, 4, 2, 3, 4]
    assert {sum(report.relevant) for report in sets["Hops"]} == {2}
    assert [sum(report.relevant) for report in sets["Hard"]] == [2, 3, 4, 5, 2, 3]
    assert all(len(report.base) >= max(KS[name]) for name, group in sets.items() for report in group)


async def test_a_small_study() -> None:
    # What is asked again is answered from memory: the recipe is to ask the same again.
    engine = Cache(connect("nano"))
    tables = await study(engine, questions=1, seed=1)
    rows = rows_of(tables[1])
    contexts = sum(row["contexts"] for row in rows.values())
    assert contexts == len(SEARCHES) * sum(map(len, KS.values()))
    assert rows["Parts-w"]["F"] > 0.5
    again = await study(engine, questions=1, seed=1)
    assert [table.as_dict() for table in again] == [table.as_dict() for table in tables]


def test_missing_the_only_decisive_passage_is_far_from_finding_one_of_ten_and_the_page_says_so():
    table = missing_five()
    kept = next(one for one in kept_results("sets")["tables"] if one["name"] == table.name)
    assert kept == json.loads(json.dumps(table.as_dict()))
    rows = rows_of(table)
    missed, one_of_ten = rows["one 5: found none"], rows["ten 5s: found one"]
    assert abs(missed["nDCG@5"] - one_of_ten["nDCG@5"]) < 0.05
    assert one_of_ten["RA-nWG@5"] > 5 * missed["RA-nWG@5"]
