"""Gives an engine more time than the budget for its first answer.

A server that has to be looked at, or a model that has to be loaded, may need longer than any budget. Were every call
cancelled with its budget, such an engine would begin anew each time. So one call at a time may go on after its budget
has ended, until the engine has answered for the first time.
"""

from __future__ import annotations

import threading
import time

START_S = 30.0
"""Seconds that an engine may take until its first answer."""


class FirstAnswer:
    """Tells whether an engine has answered, and which call may wait for its first answer longer than the budget."""

    def __init__(self) -> None:
        self._answered = False
        self._waiting_until = 0.0
        self._lock = threading.Lock()

    def may_wait(self) -> bool:
        """Returns True for the one call that may go on when its budget is over; that call ends with `waited`."""
        with self._lock:
            now = time.monotonic()
            if self._answered or now < self._waiting_until:
                return False
            self._waiting_until = now + START_S
            return True

    def waited(self, *, answered: bool) -> None:
        """Notes that the call that went on has ended, with an answer or without."""
        self._answered = self._answered or answered
        self._waiting_until = 0.0

    def came(self) -> None:
        """Notes that the engine has answered."""
        self._answered = True

    def forget(self) -> None:
        """Notes that the engine has gone away: another model may answer at its address later."""
        self._answered = False
