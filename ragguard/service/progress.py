"""Wakes the callers that wait for scores."""

from __future__ import annotations

import threading


class ScoringProgress:
    """Wakes the threads that wait for runs to be scored."""

    def __init__(self) -> None:
        self._changed = threading.Condition()

    def note(self) -> None:
        """Wakes the waiting threads after a run was scored or released."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Waits until a run was scored, or for so many seconds."""
        with self._changed:
            self._changed.wait(seconds)
