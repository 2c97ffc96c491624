"""Faults and warnings. Each fault of ragguard is counted and never reaches the application; each kind is logged once.
What a user's own code raises is a result and never reaches an event loop. A warning to the user is logged at once, and
again only after a pause.
"""

from __future__ import annotations

import asyncio
import functools
import math
import re
import threading
import time
import traceback
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from ragguard.errors import RagguardError
from ragguard.text.secret_filter import logger, without_secrets

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

log = logger("ragguard.capture")

FAULTS: tuple[type[BaseException], ...] = (Exception, CancelledError)
"""Errors that must not reach the application from a hook. CancelledError is one of them: no hook awaits, so only a
fault can raise it, and frameworks do not catch it. KeyboardInterrupt and SystemExit belong to the application and
are not caught."""
_GOES_ON = "the application goes on without this record (further ones are only counted)"
_TIME = re.compile(r"\b(in|after|passed) \d+(\.\d+)? (s|minutes|hours)\b")


class Faults:
    """Counts the faults of one RagGuard, and logs each kind once."""

    def __init__(self) -> None:
        self.count = 0
        self._known: set[tuple[str, str]] = set()
        self._lock = threading.RLock()

    def note(self, where: str, error: BaseException) -> None:
        """Counts the fault; logs it when no such error was seen at that place before.

        An error of ragguard's own says in its sentence what to do, and is logged without its traceback.
        """
        if self._is_new(where, error):
            trace = None if isinstance(error, RagguardError) else error
            log.error(f"%s failed, {_GOES_ON}: %s", where, describe(error), exc_info=trace)

    def note_without_text(self, where: str, error: BaseException) -> None:
        """Counts the fault as `note` does, and logs the error's type and place alone: the message and its causes may
        quote a text that nobody may read."""
        if self._is_new(where, error):
            frames = traceback.extract_tb(error.__traceback__, limit=-1)
            place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
            why = f"{where} raised {type(error).__name__}{place}"
            log.error(f"%s, {_GOES_ON}; the error's message is left out, as it may quote the text", why)

    def _is_new(self, where: str, error: BaseException) -> bool:
        """Counts the fault; returns whether none of its type was seen at that place before."""
        kind = (where, type(error).__name__)
        with self._lock:
            self.count += 1
            if kind in self._known or len(self._known) >= 100:
                return False
            self._known.add(kind)
            return True


def describe(error: BaseException) -> str:
    """Returns an error in one line, without secrets, as a record keeps it."""
    return brief(f"{type(error).__name__}: {message_of(error)}".removesuffix(": "))


def why_unreadable(error: Exception) -> str:
    """Returns in plain words why a file could not be read."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return (isinstance(error, OSError) and error.strerror) or message_of(error)


def message_of(error: BaseException) -> str:
    """Returns an error's own text; '' where that fails, so that the error is still recorded by its type."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - the text of a user's error is the user's code
        return ""


def brief(text: str) -> str:
    """Returns a text without secrets, cut to 500 characters, as errors and records quote it."""
    text = without_secrets(text)
    return text if len(text) <= 500 else text[:497] + "..."


def without_times(text: str) -> str:
    """Returns the text of an error without the times in it, which differ from one error of a kind to the next."""
    return _TIME.sub(r"\1 a while", text)


def is_cancelled(error: BaseException) -> bool:
    """Returns True where the current task itself is cancelled, and not something that it waits for."""
    task = asyncio.current_task()
    return isinstance(error, CancelledError) and task is not None and task.cancelling() > 0


async def result_or_error(work: Callable[[], Awaitable[T]]) -> T | BaseException:
    """Returns the result of `work`, or whatever it raises. Raises CancelledError only where the caller's own task is
    cancelled: `work` runs in a task of its own, so that the two cannot be taken for each other."""
    [result] = await asyncio.gather(catch_exit(work), return_exceptions=True)
    return result


async def catch_exit(work: Callable[[], Awaitable[T]]) -> T | BaseException:
    """Returns a SystemExit or KeyboardInterrupt of `work` in place of raising it: out of a task it would end the event
    loop, and with it all other work there."""
    try:
        return await work()
    except (SystemExit, KeyboardInterrupt) as error:
        return error


class HasFaults(Protocol):
    """An object that counts its own faults."""

    @property
    def faults(self) -> Faults:
        """The counter of the object's faults."""


S = TypeVar("S", bound=HasFaults)


def never_raises(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R | None]:
    """Makes a method return None where it would raise; the method's object notes the error in its `faults`.

    Passing keywords through costs about two microseconds: the busiest hooks catch FAULTS themselves.
    """

    @functools.wraps(method)
    def guarded(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return method(self, *args, **kwargs)
        except FAULTS as error:
            self.faults.note(method.__qualname__, error)
            return None

    return guarded


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

    def forget(self) -> None:
        """Forgets what was logged, so that each subject is logged again."""
        self._next.clear()

    def warn(self, subject: str, sentence: str, pause: float = PAUSE) -> bool:
        """Logs the sentence unless its subject was logged less than `pause` seconds ago; True where it was logged.
        While 256 subjects are within their pauses, no other one is logged."""
        now = self._clock()
        if subject not in self._next and len(self._next) >= _MOST_SUBJECTS:
            self._next = {other: until for other, until in list(self._next.items()) if until > now}
        if now < self._next.get(subject, -math.inf if len(self._next) < _MOST_SUBJECTS else math.inf):
            return False
        self._next[subject] = now + pause
        _log.warning("%s", sentence)
        return True

    def once(self, subject: str, sentence: str) -> bool:
        """Logs the sentence the first time that its subject comes up in this process."""
        return self.warn(subject, sentence, ONCE)


NOTICES = Notices()
"""The notices of this process, shared by all RagGuards and guards."""
