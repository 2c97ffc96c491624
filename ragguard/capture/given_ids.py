"""The ids that users gave to runs and steps in this process: one given twice is noticed without a look at the store."""

from __future__ import annotations

from collections import OrderedDict

from ragguard.capture.events import RunIdentity, renamed, renamed_step
from ragguard.records import new_id
from ragguard.runtime.notices import NOTICES

IDS_KEPT = 10_000
"""The number of given ids that a process remembers, and a run of its steps; the store knows older ones."""


class GivenIds:
    """The ids that users gave to the runs of this process, within a bound. Not thread-safe."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def discard(self, run_id: str) -> None:
        """Forgets an id."""
        self._ids.pop(run_id, None)

    def claim(self, run_id: str, resumes: bool, *, in_use: bool) -> RunIdentity:
        """Returns the identity of a run that asks for an id: an id that was given before, or that is `in_use`, goes to
        no other run than one that `resumes`, and a warning names both ids."""
        taken = in_use or run_id in self._ids
        self._ids[run_id] = None
        self._ids.move_to_end(run_id)
        if len(self._ids) > IDS_KEPT:
            self._ids.popitem(last=False)
        if resumes or not taken:
            return RunIdentity(run_id, resumes)
        fresh = new_id()
        NOTICES.warn("run id used twice", renamed(run_id, fresh), pause=1.0)
        return RunIdentity(fresh, instead_of=run_id)


class GivenStepIds:
    """The ids that users gave to the steps of one open run, within a bound. Not thread-safe."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def claim(self, run_id: str, step_id: str, *, in_use: bool) -> str:
        """Returns the id of a step that asks for one: an id that was given before, or that is `in_use`, goes to no
        other step, and a warning names both ids."""
        taken = in_use or step_id in self._ids
        self._ids[step_id] = None
        if len(self._ids) > IDS_KEPT:
            del self._ids[next(iter(self._ids))]
        if not taken:
            return step_id
        fresh = new_id()
        NOTICES.warn("step id used twice", renamed_step(run_id, step_id, fresh), pause=1.0)
        return fresh
