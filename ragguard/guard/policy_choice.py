"""Lets a guard's policies choose the passages to drop, within what is left of the budget."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from functools import partial

from ragguard.guard.health import GuardOutcome
from ragguard.guard.policies import (
    HelpThreshold,
    Judged,
    Policy,
    TopUtility,
    UtilityThreshold,
    choose,
    names_of,
)
from ragguard.records import Dropped
from ragguard.runtime.deadline import seconds_left
from ragguard.runtime.faults import describe
from ragguard.runtime.threads import DaemonThreads

POLICY_THREADS = 8
"""Threads on which one guard's policies run; further calls wait, within their budgets. Each guard has its own."""
QUICK = (UtilityThreshold, HelpThreshold, TopUtility)
"""Policies that compare numbers only: they need no thread."""


class PolicyChoice:
    """Runs policies: quick ones at once, others on a thread, so that a slow one holds up no event loop."""

    def __init__(self) -> None:
        self._threads = DaemonThreads(POLICY_THREADS, "ragguard-policy")

    async def outcome(
        self,
        policies: Sequence[Policy],
        judged: list[Judged],
        min_keep: int,
        *,
        deadline: float,
        budget_ms: float,
        blank: int,
    ) -> GuardOutcome:
        """Returns the outcome: the judged passages that the policies drop, or the reason why they did not choose.

        `deadline` is when the budget of `budget_ms` ends; `blank` passages had no text and were not judged.
        """
        choosing = partial(choose, policies, judged, min_keep)
        if all(type(policy) in QUICK for policy in policies):
            reasons = choosing()
        else:
            in_context = partial(contextvars.copy_context().run, choosing)
            future = asyncio.wrap_future(self._threads.submit(in_context))
            try:
                await asyncio.wait({future}, timeout=seconds_left(deadline))
                if not future.done():
                    why = f"{names_of(policies)} did not choose within {budget_ms:g} ms"
                    return GuardOutcome("timeout", why, "policy")
            finally:
                future.cancel()
            if (error := future.exception()) is not None:
                return GuardOutcome("error", f"{names_of(policies)}: {describe(error)}", "policy")
            reasons = future.result()
        dropped = [
            Dropped(
                item.passage,
                item.position,
                reasons[item.position],
                item.utility,
                p_abstain=item.p_abstain,
                p_relevant=item.p_relevant,
            )
            for item in judged
            if item.position in reasons
        ]
        unclear = [item.problem for item in judged if item.problem]
        notes = [names_of(policies)]
        if blank:
            notes.append(f"{blank} without text not judged")
        if unclear:
            notes.append(f"{len(unclear)} of {len(judged)} could not be judged: {unclear[0]}")
        return GuardOutcome(
            "pruned" if dropped else "kept_all", "; ".join(notes), "unclear" if unclear else "", dropped
        )
