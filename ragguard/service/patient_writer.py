"""Writes batches of events to a store, and waits for a disk that takes nothing now."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ragguard.errors import StoreUnavailable
from ragguard.runtime.circuit_breaker import RetrySchedule
from ragguard.service.queue import AwaitedEvent, EventQueue
from ragguard.storage.sqlite.store import Store
from ragguard.storage.sqlite.writing import EventBatch
from ragguard.text.secret_filter import logger

_log = logger("ragguard")

_PAUSES = RetrySchedule(first=0.1, longest=5.0)
"""The pauses between two attempts."""
_OUTAGE = (
    "%s. What is captured waits in memory, at most %s bytes, and is tried again every few seconds; beyond that the "
    "oldest is dropped, and what waits is lost if this process ends. Free the disk"
)


class PatientWriter:
    """Tries a batch again with pauses until the disk takes it; meanwhile the queue fills."""

    def __init__(self, store: Store, queue: EventQueue, most_bytes: int) -> None:
        self._store, self._queue, self._most_bytes = store, queue, most_bytes
        self.try_now = False
        """True where the disk is to be tried without a pause; whoever sets it wakes the queue."""
        self.ending = False
        """True once nothing is waited for any more."""

    def write(self, batch: EventBatch, waiting: Sequence[AwaitedEvent] = ()) -> dict[str, bool] | None:
        """Writes a batch; returns what `Store.write` does, or None where the disk takes nothing until the end.

        The callers that wait for their events return at the first failure: nothing can be confirmed to them.
        """
        failures = 0
        while True:
            self.try_now = False
            try:
                changed = self._store.write(batch)
            except StoreUnavailable as error:
                failures += 1
                if failures == 1:
                    self._store.count("outages")
                    _log.error(_OUTAGE, error, f"{self._most_bytes:,}")
                for awaited in waiting:
                    awaited.written.set()
                if self.ending and not self.try_now:
                    return None
                until = time.monotonic() + _PAUSES.wait(failures)
                while not self.try_now and (left := until - time.monotonic()) > 0:
                    self._queue.rest(left)
            else:
                if failures:
                    _log.warning("the disk takes what is captured again: what waited is written")
                return changed
