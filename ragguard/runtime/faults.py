"""What keeps capture's own faults away from the host: each is counted, each kind is logged once."""

from __future__ import annotations

import asyncio
import functools
import threading
from asyncio import CancelledError
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ragguard.secrets import logger, without_secrets

log = logger("ragguard.capture")

FAULTS: tuple[type[BaseException], ...] = (Exception, CancelledError)
"""What must not reach the host. CancelledError too: hosts let that one pass from a handler, and nothing in a hook
awaits, so it can only come from a fault. KeyboardInterrupt and SystemExit are the host's and go on."""


class Faults:
    """Counts what went wrong inside capture, and says each kind once."""

    def __init__(self) -> None:
        self.count = 0
        self._known: set[tuple[str, str]] = set()
        self.renew()

    def renew(self) -> None:
        """A new lock, for a forked process: the old one may be held by a thread that is not there."""
        self._lock = threading.RLock()

    def note(self, where: str, error: BaseException) -> None:
        """Counts the fault; logs it when no such error was seen at that place before."""
        kind = (where, type(error).__name__)
        with self._lock:
            self.count += 1
            if kind in self._known or len(self._known) >= 100:
                return
            self._known.add(kind)
        log.error(
            "%s failed, the application goes on without this record (further ones are only counted): %s",
            where, describe(error), exc_info=error,
        )  # fmt: skip


def describe(error: BaseException) -> str:
    """An error in one line, as a record keeps it."""
    try:
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
    except BaseException:  # noqa: BLE001 - an error whose own text fails is still recorded by its type
        text = type(error).__name__
    text = without_secrets(text)
    return text if len(text) <= 500 else text[:497] + "..."


def is_cancelled(error: BaseException) -> bool:
    """True for a cancellation of the task at work itself, and not of something that it was waiting for."""
    task = asyncio.current_task()
    return isinstance(error, CancelledError) and task is not None and task.cancelling() > 0


P = ParamSpec("P")
R = TypeVar("R")


def never_raises(method: Callable[P, R]) -> Callable[P, R | None]:
    """Makes a method give None where it would raise; what it belongs to has `faults`.

    Passing keywords through costs about two microseconds: the busiest hooks catch FAULTS themselves.
    """

    @functools.wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return method(*args, **kwargs)
        except FAULTS as error:
            faults: Faults = args[0].faults  # type: ignore[attr-defined]
            faults.note(method.__qualname__, error)
            return None

    return guarded
