"""Counts the runs that wait to be scored where there is no store, holds hooks back while there are too many, and wakes
the callers that wait for scores."""

from __future__ import annotations

import threading

from ragguard.storage.sqlite.store import Store


class ScoringBacklog:
    """Counts runs that have ended and are not scored; holds a run's end back while there are too many."""

    def __init__(self, size: int, timeout: float, store: Store) -> None:
        """Takes the most seconds for which the end of a run is held back."""
        self._size, self.timeout, self._store = size, timeout, store
        self._changed = threading.Condition()
        self._queued = self._written = 0

    @property
    def full(self) -> bool:
        """True while no further run may wait."""
        return self._queued + self._written >= self._size

    def enter(self, *, wait: bool) -> None:
        """Counts a run that has ended; with `wait`, once fewer runs wait or the timeout has passed."""
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: not self.full, self.timeout)
            self._queued += 1

    def update(self, written: int = 0) -> None:
        """Notes that `written` ended runs are now stored, and counts the stored runs that wait.

        Both change together: a run that is counted as neither queued nor stored would let one too many in.
        """
        with self._changed:
            self._queued -= written
            left = self._store.left()
            self._written = left.pending - left.undelivered
            self._changed.notify_all()

    def leave(self, ended: int) -> None:
        """Notes that `ended` runs that entered will never be stored."""
        with self._changed:
            self._queued -= ended
            self._changed.notify_all()


class ScoringProgress:
    """Wakes the threads that wait for runs to be scored."""

    def __init__(self, backlog: ScoringBacklog | None) -> None:
        self._backlog = backlog
        self._changed = threading.Condition()

    def note(self) -> None:
        """Wakes the waiting threads after a run was scored or released."""
        if self._backlog is not None:
            self._backlog.update()
        with self._changed:
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Waits until a run was scored, or for so many seconds."""
        with self._changed:
            self._changed.wait(seconds)
