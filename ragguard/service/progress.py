"""Lets callers of `flush`, and hooks that are held back, wait until a run has been scored."""

from __future__ import annotations

import threading

from ragguard.service.backlog import ScoringBacklog


class ScoringProgress:
    """Wakes the threads that wait for runs to be scored."""

    def __init__(self, backlog: ScoringBacklog | None) -> None:
        self._backlog = backlog
        self.begin()

    def begin(self) -> None:
        """Starts with nobody waiting: at first, and in a forked child."""
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
