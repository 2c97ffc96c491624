"""Distractors beside an answer, and abstention by sampling, on a small size."""

import numpy as np
import pytest
from support.rows import rows_of

from ragguard import connect
from ragguard.engines.layers import Cache
from studies.distractors import BESIDE, LONG, Distractors, sampling_errors, study
from studies.hard_world import hard_cases


def test_the_answer_is_put_where_it_is_wanted() -> None:
    case = hard_cases(1, seed=3, each=3)[0]
    passages = tuple(passage for passage in case.distractors if passage.metadata["kind"] != "partial")
    pool = Distractors(case, passages, np.linspace(0, 1, len(passages)))
    context = pool.context([2, 0, 1], 1, "x")
    assert [passage.text for passage in context.passages] == [
        passages[2].text, case.gold[0].text, passages[0].text, passages[1].text,
    ]  # fmt: skip
    assert context.relevance == (0, 1, 0, 0)


def test_errors_of_an_estimate_are_what_they_are_called() -> None:
    p, estimate = np.array([0.5, 0.1]), np.array([0.8, 0.0])
    mean, rms, chance, bias, _, alike, _ = sampling_errors(
        p, estimate, 10, np.array([0.0, 0.0]), np.array([0, 0])
    )
    assert (mean, bias) == (pytest.approx(0.2), pytest.approx(0.1))
    assert rms == pytest.approx(np.sqrt((0.09 + 0.01) / 2))
    assert chance == pytest.approx(np.sqrt((0.025 + 0.009) / 2))
    # Utilities −0.5 and −0.9 are both under the guard's threshold; −0.2 is not under it, −1 is.
    assert alike == pytest.approx(50)


async def test_a_small_study() -> None:
    engine = Cache(connect("nano"))
    tables = {table.name: table for table in await study(engine, questions=10, seed=2)}
    (strength,) = rows_of(tables["distractors-strength"]).values()
    # The order measures see one and the same context; the reader and UDCG do not.
    assert strength["weak: correct, %"] > strength["hard: correct, %"]
    assert strength["UDCG, weak"] > strength["UDCG, hard"] + 0.05
    assert strength["questions"] <= 10
    effects = [row[1] for row in tables["distractors-degrees"].rows]
    assert effects[0] < 0.1 < 0.7 < effects[-1]
    places = tables["distractors-position"].rows
    assert [row[0] for row in places] == [str(at) for at in range(1, LONG + 1)]
    assert [row[4] for row in places] == sorted((row[4] for row in places), reverse=True)
    assert {row[7] for row in places} == {1 / LONG}
    errors = {row[0]: row for row in tables["distractors-sampling"].rows}
    assert errors["20"][2] < errors["1"][2] < 0.5
    assert errors["20"][2] == pytest.approx(errors["20"][3], rel=0.7)
    assert BESIDE == 4
    again = await study(engine, questions=10, seed=2)
    assert [table.as_dict() for table in again] == [table.as_dict() for table in tables.values()]
