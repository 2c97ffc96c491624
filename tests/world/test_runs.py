"""Runs played from cases carry the truth about their steps."""

from __future__ import annotations

import pytest

from ragguard import world
from ragguard.errors import InvalidInput


def test_a_step_a_hop_with_its_gold() -> None:
    case = world.cases(1, seed=1, hops=2)[0]
    run = world.make_run(case, junk=2)
    assert [step.query for step in run.steps] == case.sub_questions
    assert [step.index for step in run.steps] == [step.turn for step in run.steps] == [0, 1]
    assert all(gold in step.passages for gold, step in zip(case.gold, run.steps, strict=True))
    assert all(len(step.passages) == 3 and step.run_id == run.id for step in run.steps)
    assert run.answer == case.answer
    assert run.references == case.references


def test_a_misled_run_answers_falsely_and_says_so() -> None:
    for seed, case in enumerate(world.cases(20, seed=2, hops=2)):
        run = world.make_run(case, seed=seed, mislead=(2,))
        step = run.steps[1]
        assert step.metadata["role"] == "misled"
        assert case.gold[1] not in step.passages
        assert run.answer not in case.references
        assert any(str(run.answer) in passage.text for passage in step.passages)


def test_useless_and_missed_and_parallel_steps() -> None:
    case = world.cases(1, seed=3, hops=2)[0]
    run = world.make_run(case, useless_steps=2, miss=(1,), parallel=True, references=False)
    roles = [step.metadata["role"] for step in run.steps]
    assert sorted(roles) == ["gold", "missed", "useless", "useless"]
    assert {step.turn for step in run.steps} == {0}
    assert run.references is None
    assert case.gold[0] not in [p for step in run.steps for p in step.passages]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("miss", {"miss": (3,)}),
        ("mislead", {"mislead": (0,)}),
        ("mislead", {"mislead": (1,)}),
        ("junk", {"junk": -1}),
    ],
)
def test_run_that_a_case_cannot_play_is_refused(name: str, wrong: dict[str, object]) -> None:
    (case,) = world.cases(1, hops=2, distractors=world.Counts(contradiction=0))
    with pytest.raises(InvalidInput, match=name):
        world.make_run(case, **wrong)  # type: ignore[arg-type]
