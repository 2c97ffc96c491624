"""Which metric goes with the outcomes of a data set, by hand and at random."""

import numpy as np
import pytest

from ragguard.errors import InvalidInput, ScoringError
from ragguard.lab.validation.contexts import Context, Scored, rank_values
from ragguard.lab.validation.correlations import measured, tables
from ragguard.metrics import udcg
from ragguard.records import Passage, Score


def scored(question, number, outcome, **values):
    context = Context(
        id=f"{question}/{number}", question_id=question, question=question, passages=(Passage("x"),),
        outcome=outcome, given={"theirs": 1.0 * number},
    )  # fmt: skip
    return Scored(context, values)


def questions(count, contexts=6, seed=0):
    draw = np.random.default_rng(seed)
    for question in range(count):
        for number in range(contexts):
            outcome = float(draw.integers(3))
            yield scored(f"q{question}", number, outcome, same=outcome + 100 * question, noise=draw.random())


def row_of(table, name):
    (row,) = [row for row in table.rows if row[0] == name]
    return dict(zip(table.columns, row, strict=True))


def test_the_outcome_itself_is_first_and_noise_is_nothing():
    first, second = tables(measured(list(questions(40))))
    same, noise = row_of(first, "same"), row_of(first, "noise")
    assert first.rows[0][0] == "same"
    assert (same["Spearman"], same["Kendall τ-b"]) == (pytest.approx(1), pytest.approx(1))
    assert noise["from"] < 0 < noise["to"]
    assert same["questions"] + same["skipped"] == 40
    gap = row_of(second, "noise")
    assert gap["from"] > 0.5
    assert gap["p"] < 0.01


def test_another_metric_may_be_set_against_the_others():
    _, second = tables(measured(list(questions(20))), "noise")
    assert row_of(second, "same")["by"] < -0.5
    with pytest.raises(InvalidInput, match="metric: got 'nois'; allowed: one of"):
        tables(measured(list(questions(20))), "nois")


def test_with_one_context_a_question_all_are_compared_and_that_is_said():
    data = measured([scored(f"q{n}", 0, float(n), same=float(n)) for n in range(9)])
    first = tables(data)[0]
    assert row_of(first, "same")["Spearman"] == pytest.approx(1)
    assert "contexts" in first.columns
    assert row_of(first, "same")["from"] is None
    assert "easy counts" in " ".join(first.notes)


def test_the_notes_say_on_how_many_contexts_a_metric_rests():
    some = list(questions(8))
    everywhere = tables(measured(some))
    assert "rest on different" not in " ".join((*everywhere[0].notes, *everywhere[1].notes))
    for row in everywhere[1].rows:
        rows = {one[0]: one[1] for one in everywhere[0].rows}
        assert row[1] == pytest.approx(rows["same"] - rows[row[0]])
    without = [
        one if place % 2 else Scored(one.context, {"same": one.values["same"]})
        for place, one in enumerate(some)
    ]
    first = tables(measured(without))[0]
    assert "noise on 24." in first.notes[-1]
    assert "all 48 contexts" in first.notes[-1]


def empty(question, number, outcome, k=None):
    context = Context(
        id=f"{question}/{number}", question_id=question, question=question, passages=(), relevance=(),
        outcome=outcome, k=k,
    )  # fmt: skip
    return Scored(context, {"udcg": 0.5, **rank_values(context)})


def test_a_context_without_passages_takes_part_and_its_places_count():
    def full(number, outcome, k):
        context = Context(
            id=f"q/{number}", question_id="q", question="q", passages=(Passage("x"),), relevance=(1.0,), k=k,
            outcome=outcome,
        )  # fmt: skip
        score = Score("p_abstain", 0.1, "passage", "r", position=1)
        return Scored(context, {"udcg": 0.6, **rank_values(context)}, (score,))

    values = measured(
        [empty("q", 0, 0.0, k=4), empty("q", 1, 0.0), full(2, 2.0, 3), full(3, 2.0, None)]
    ).values
    assert values["precision"].tolist() == [0, 0, pytest.approx(1 / 3), 1]
    expected = [0.5, 0.5, float(udcg([0.9, 0.0, 0.0])), float(udcg([0.9]))]
    assert values["udcg, own relevance"].tolist() == pytest.approx(expected)


def test_a_metric_that_says_nothing_of_most_questions_does_not_come_first():
    some = list(questions(20))
    rare = [
        Scored(one.context, {**one.values, "rare": one.values["same"] if place < 6 else 1.0})
        for place, one in enumerate(some)
    ]
    first = tables(measured(rare))[0]
    row = row_of(first, "rare")
    assert row["questions"] == row_of(first, "same")["questions"]
    assert row["Spearman"] == pytest.approx(1 / row["questions"])


def test_without_outcomes_or_metrics_there_is_nothing_to_say():
    one = scored("q", 0, None, x=1.0)
    with pytest.raises(InvalidInput, match=r"outcome: .*--engine"):
        measured([one])
    with pytest.raises(
        ScoringError, match="all 3 contexts that have one have the same, 1; give contexts whose"
    ):
        measured([scored("q", n, 1.0, x=1.0) for n in range(3)])
    bare = [
        Scored(Context(id=f"{n}", question_id="q", question="q", passages=(), outcome=float(n)), {})
        for n in (0, 1)
    ]
    with pytest.raises(InvalidInput, match=r"metrics: .*--engine"):
        measured(bare)
    assert measured([one, scored("q", 1, 1.0, x=1.0), scored("q", 2, 2.0, x=2.0)]).left_out == 1
