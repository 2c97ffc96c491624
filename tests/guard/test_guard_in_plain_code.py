"""A guard that plain code inside a run asks: its decision is that of the retrieval which it is about."""

from __future__ import annotations

import pytest
from langchain_core.documents import Document
from support.guards import HELPS, MISLEADS
from support.guards import guard as guarded

from ragguard import RagGuard
from ragguard.runtime.faults import NOTICES
from ragguard.schema import checked_run

OTHER = "It rains."


def captured():
    return RagGuard("nano", store=None, scorers=()), guarded()


def test_plain_guard_after_a_retrieval_is_the_guard_of_its_step():
    rg, guard = captured()
    with rg, rg.run("Who?") as run:
        run.retrieved("other", [OTHER])
        run.retrieved("who", [MISLEADS, HELPS])
        decision = guard.prune("who", [Document(MISLEADS), Document(HELPS)])
    other, step = run.steps
    assert other.decision is None
    assert [drop.position for drop in step.decision.dropped] == [1]
    assert [one.text for one in step.passages] == [HELPS]
    assert [one.text for one in step.candidates] == [MISLEADS, HELPS]
    assert decision.status == step.decision.status == "pruned"


def test_passages_that_were_cut_before_a_plain_guard_do_not_count_as_read():
    rg, guard = captured()
    with rg, rg.run("Who?") as run:
        run.retrieved("who", [MISLEADS, OTHER, HELPS])
        guard.prune("who", [HELPS, MISLEADS])
    (step,) = run.steps
    assert [one.text for one in step.passages] == [HELPS]
    assert [drop.position for drop in step.decision.dropped] == [1]
    assert checked_run(run.record())


def test_decision_that_is_given_with_the_step_stays_and_goes_to_no_other():
    rg, guard = captured()
    with rg, rg.run("Who?") as run:
        run.retrieved("before", [OTHER])
        decision = guard.prune("who", [MISLEADS, HELPS])
        run.retrieved("who", decision.kept, candidates=[MISLEADS, HELPS], decision=decision)
    before, step = run.steps
    assert before.decision is None
    assert step.decision == decision


def test_plain_guard_outside_of_a_run_or_about_other_passages_changes_nothing():
    rg, guard = captured()
    with rg:
        guard.prune("who", [MISLEADS, HELPS])
        with rg.run("Who?") as run:
            run.retrieved("who", [MISLEADS])
            guard.prune("who", [MISLEADS, HELPS])
    assert run.steps[0].decision is None


@pytest.mark.parametrize("reported", [[HELPS], [MISLEADS, HELPS]], ids=["kept", "given"])
def test_plain_guard_before_its_retrieval_is_reported_is_the_guard_of_that_step(reported, caplog):
    rg, guard = captured()
    with rg, rg.run("Who?") as run:
        run.retrieved("other", [OTHER])
        guard.prune("who", [MISLEADS, HELPS])
        run.retrieved("who", reported)
    other, step = run.steps
    assert other.decision is None
    assert [one.text for one in step.candidates] == [MISLEADS, HELPS]
    assert [one.text for one in step.passages] == [HELPS]
    assert [drop.position for drop in step.decision.dropped] == [1]
    assert checked_run(run.record())
    assert "belongs to no recorded retrieval" not in caplog.text


def test_plain_guard_whose_retrieval_is_never_reported_is_said_once_with_the_way_out(caplog):
    NOTICES.forget()
    rg, guard = captured()
    with rg, rg.run("Who?") as run:
        guard.prune("who", [MISLEADS, HELPS])
        guard.prune("who", [MISLEADS, HELPS])
        run.retrieved("who", [OTHER])
    assert run.steps[0].decision is None
    (said,) = [text for text in caplog.messages if "belongs to no recorded retrieval" in text]
    assert "Record the retrieval first" in said
