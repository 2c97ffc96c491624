"""The study of both beliefs: the runs that it is made of, and a table over a few of them."""

import pytest

from ragguard import connect
from studies.__main__ import joined
from studies.likelihood import GROUPS, TOGETHER, prose_runs, study, world_runs
from studies.rated import rightness

pytestmark = pytest.mark.slow


def test_of_three_runs_one_finds_everything_one_is_misled_and_one_misses():
    runs = world_runs(3, seed=0)["2 hops"]
    assert [sorted(step.metadata["role"] for step in run.steps) for run in runs] == [
        ["gold", "gold", "useless"],
        ["gold", "misled", "useless"],
        ["gold", "missed", "useless"],
    ]


def test_each_question_of_prose_has_a_run_that_finds_the_answer_and_one_that_does_not():
    for name, runs in prose_runs(20).items():
        assert len(runs) == (20 if name == "2 hops" else 40)
        held = [run.references[0] in run.steps[-1].passages[0].text for run in runs]
        assert held == [True, False] * (len(runs) // 2)
        assert [run.steps[-1].metadata["role"] == "gold" for run in runs] == held
    roles = [run.steps[-1].metadata["role"] for run in prose_runs(2)["1 hop, known"]]
    assert roles == ["gold", "missed", "gold", "misled"]


async def test_a_rating_is_the_expected_digit():
    class Even:
        async def label_probs(self, prompts, labels):
            return [
                [0.0, 0.2, 0.0, 0.2] + [0.0] * 6 if "Text: a" in prompt else [0.1] * 10 for prompt in prompts
            ]

    assert await rightness(Even(), "Who?", "Ada", [["a"], []]) == pytest.approx([2.0, 4.5])


async def test_table_has_a_row_for_each_kind_and_orders_what_is_plain():
    (table,) = await study(connect("nano"), questions=3)
    assert [row[0] for row in table.rows] == [name for name, _, _ in GROUPS]
    assert table.rows[0][4] == 1.0  # one hop: the step with the answer has the larger change of likelihood
    assert table.rows[0][-2:] == (6, 3)


async def test_readers_of_the_same_runs_stand_in_one_table():
    one = await study(connect("nano"), questions=3, together=True)
    agreement, reading = joined([one, one], ["first", "second"])
    assert [row[:2] for row in agreement.rows] == [
        (reader, name) for reader in ("first", "second") for name in TOGETHER
    ]
    assert agreement.columns[:2] == ("reader", "Runs")
    known = {row[1]: dict(zip(reading.columns, row, strict=True)) for row in reading.rows}
    # What nano knows by heart it answers without a passage; one run of three finds all, two do not.
    assert known["1 hop, known"]["SePer without"] > known["1 hop"]["SePer without"]
    assert known["1 hop"]["right with what is needed, %"] == 100
    assert {row["questions"] for row in known.values()} == {1}
