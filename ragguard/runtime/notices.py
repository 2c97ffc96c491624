"""Warnings to the user: each subject is logged at once, and again only after a pause, with the number left out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ragguard.text.secret_filter import logger

_log = logger("ragguard")

PAUSE = 60.0
"""Seconds before the same subject is logged again."""
ONCE = math.inf
"""The pause of a subject that is logged once a process."""
_MOST_SUBJECTS = 256


class Notices:
    """Logs warnings, each subject at most once in a pause."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next: dict[str, float] = {}
        """The time from which each subject may be logged again. Without a lock: two threads may log it at once."""
        self._left_out: dict[str, int] = {}

    def forget(self) -> None:
        """Forgets what was logged, so that each subject is logged again."""
        self._next.clear()
        self._left_out.clear()

    def warn(self, subject: str, sentence: str | Callable[[], str], pause: float = PAUSE) -> bool:
        """Logs the sentence unless its subject was logged less than `pause` seconds ago; True where it was logged.

        A function in place of the sentence is called only when it is logged. While 256 subjects are within their
        pauses, no other one is logged.
        """
        now = self._clock()
        if now < self._next.get(subject, -math.inf):
            self._left_out[subject] = self._left_out.get(subject, 0) + 1
            return False
        if subject not in self._next and len(self._next) >= _MOST_SUBJECTS:
            for old in [other for other, until in list(self._next.items()) if until <= now]:
                self._next.pop(old, None)
                self._left_out.pop(old, None)
            if len(self._next) >= _MOST_SUBJECTS:
                return False
        self._next[subject] = now + pause
        left_out = self._left_out.pop(subject, 0)
        more = f" ({left_out:,} more since this was last logged)" if left_out else ""
        _log.warning("%s%s", sentence() if callable(sentence) else sentence, more)
        return True

    def once(self, subject: str, sentence: str | Callable[[], str]) -> bool:
        """Logs the sentence the first time that its subject comes up in this process."""
        return self.warn(subject, sentence, ONCE)


NOTICES = Notices()
"""The notices of this process, shared by all RagGuards and guards."""
