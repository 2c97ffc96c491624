"""Settles which step an id means that a stored run has already: the same step, which a repeated batch writes again, or
another one, which gets an id of its own.

Capture gives an id once in an open run. It cannot know the steps of a run that is continued: those that another process
captured, or this one before the run was continued.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from hashlib import sha256

from ragguard.capture.events import ASKED, renamed_step
from ragguard.runtime.notices import NOTICES
from ragguard.storage.sqlite.columns import dump
from ragguard.storage.sqlite.rows import STEP_COLUMNS, StepRow

KEPT = 10_000
"""The number of steps with an id of their own that are remembered: enough for all that may still be amended."""
_STARTED, _ENDED = map(STEP_COLUMNS.index, ("started_ns", "ended_ns"))


class StepIds:
    """The ids of the steps that did not get the id under which this process captured them."""

    def __init__(self) -> None:
        self._own: OrderedDict[tuple[str, str], str] = OrderedDict()

    def get(self, run_id: str, step_id: str) -> str:
        """Returns the stored id of a step, from the ids under which it was captured."""
        return self._own.get((run_id, step_id), step_id)

    def keep(self, run_id: str, step_id: str) -> None:
        """Notes that a step is stored under the id with which it was captured."""
        if self._own:
            self._own.pop((run_id, step_id), None)

    def rename(self, run_id: str, step: StepRow) -> StepRow:
        """Returns the step with an id of its own, the same one however often the step is written."""
        row = dict(zip(STEP_COLUMNS, step.columns, strict=True))
        asked, times = row["id"], times_of(step)
        row["id"] = sha256(dump([asked, *times]).encode("utf-8")).hexdigest()[:32]
        body = json.loads(row["body"])
        body["metadata"] = {**body.get("metadata", {}), ASKED: asked}
        row["body"] = dump(body)
        self._own[run_id, step.id] = row["id"]
        if len(self._own) > KEPT:
            self._own.popitem(last=False)
        return step._replace(id=row["id"], columns=tuple(row.values()))


def times_of(step: StepRow) -> tuple[int, int]:
    """Returns when the step began and ended, which tells it from another step of the same id."""
    return step.columns[_STARTED], step.columns[_ENDED]


def warn_of_renamed(run_id: str, asked: str, step: StepRow) -> None:
    """Logs that a step was written under an id of its own."""
    NOTICES.warn("step id used twice", renamed_step(run_id, asked, step.id), pause=1.0)
