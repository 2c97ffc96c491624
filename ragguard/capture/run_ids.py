"""The ids of runs and steps: an id that the application gives goes to one run, or one step of a run, alone."""

from __future__ import annotations

from ragguard.capture.enclosing import is_paused
from ragguard.capture.events import RunIdentity, renamed, renamed_step
from ragguard.capture.given_ids import GivenIds
from ragguard.capture.open_runs import OpenRuns
from ragguard.capture.sampling import Sampling
from ragguard.records import new_id
from ragguard.runtime.notices import NOTICES


class RunIds:
    """Gives ids to the runs of one process, and to their steps. The store's writer knows the ids of other processes
    and earlier ones."""

    def __init__(self, runs: OpenRuns, sampling: Sampling) -> None:
        self._runs, self._sampling, self._given = runs, sampling, GivenIds()

    def claim(self, run_id: str, *, resumes: bool = False) -> RunIdentity:
        """Takes an id that a user gives to a run. Where this process has used the id already, the run gets one of its
        own, with a warning. A run that `resumes` continues the one that has the id."""
        if is_paused() or not self._sampling.takes(run_id):
            return RunIdentity(run_id, resumes)
        with self._runs.lock:
            is_new = self._given.take(run_id) and run_id not in self._runs
        if resumes or is_new:
            return RunIdentity(run_id, resumes)
        fresh = new_id()
        NOTICES.warn("run id used twice", renamed(run_id, fresh), pause=1.0)
        return RunIdentity(fresh, instead_of=run_id)

    def claim_step(self, run_id: str, step_id: str) -> str:
        """Takes an id that a user gives to a step; returns the one that the step gets, which is another one, with a
        warning, where a step of the open run has it."""
        with self._runs.lock:
            run = self._runs.get(run_id)
            if run is None or not run.sampled or is_paused():
                return step_id
            run.given = run.given or GivenIds()
            if run.given.take(step_id) and step_id not in run.ended:
                return step_id
        fresh = new_id()
        NOTICES.warn("step id used twice", renamed_step(run_id, step_id, fresh), pause=1.0)
        return fresh

    def release(self, run_id: str) -> None:
        """Allows an id to be used again, since its run was deleted."""
        with self._runs.lock:
            self._given.discard(run_id)

    def stored(self, run_id: str) -> str:
        """Returns the id in the store of an open run, as far as it is known."""
        return run_id if (run := self._runs.get(run_id)) is None or run.identity is None else run.identity.id
