"""The study of both beliefs: the runs that it is made of, and a table over a few of them."""

from ragguard import connect
from studies.likelihood import GROUPS, exam_runs, study, world_runs


def test_of_three_runs_one_finds_everything_one_is_misled_and_one_misses():
    runs = world_runs(3, seed=0)["2 hops"]
    assert [sorted(step.metadata["role"] for step in run.steps) for run in runs] == [
        ["gold", "gold", "useless"],
        ["gold", "misled", "useless"],
        ["gold", "missed", "useless"],
    ]


def test_runs_over_prose_find_the_answer_in_every_other_question():
    one_hop, two_hops = exam_runs(4).values()
    held = [run.references[0] in run.steps[-1].passages[0].text for run in one_hop + two_hops]
    assert held == [False, True, False, True, True, False]


async def test_table_has_a_row_for_each_kind_and_orders_what_is_plain():
    (table,) = await study(connect("nano"), questions=3)
    assert [row[0] for row in table.rows] == [name for name, _, _ in GROUPS]
    assert table.rows[0][4] == 1.0  # one hop: the step with the answer has the larger change of likelihood
    assert table.rows[0][-2:] == (6, 3)
