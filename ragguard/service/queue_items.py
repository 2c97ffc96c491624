"""The items of the writer's queue: captured events, events for which a hook waits, and jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

from ragguard.capture.events import Event, RunEnded, RunStarted
from ragguard.capture.open_runs import WholeRun

T_co = TypeVar("T_co", covariant=True)


@dataclass(slots=True)
class WriterJob(Generic[T_co]):
    """A function that the writer calls in the order of the queue."""

    work: Callable[[], T_co]
    done: Future[T_co]

    def run(self) -> None:
        """Calls the function; its result or its error goes into the future."""
        if self.done.set_running_or_notify_cancel():
            try:
                self.done.set_result(self.work())
            except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
                self.done.set_exception(error)


@dataclass(slots=True)
class AwaitedEvent:
    """An event whose hook waits until it is on the disk."""

    event: Event | WholeRun
    written: threading.Event
    on_disk: bool = False


QueueItem = Event | WholeRun | AwaitedEvent | WriterJob[object] | None


def may_drop(item: QueueItem) -> bool:
    """Returns whether a full queue may drop the item.

    The queue keeps the end of a run, which is small and ends a run that is stored already; jobs and awaited events, for
    which a caller waits; and the start of a run that goes on, without which its events would be a run of their own.
    """
    if type(item) is RunStarted:
        return not item.names.resumes
    return item is not None and not isinstance(item, (RunEnded, WriterJob, AwaitedEvent))


def events_in(item: QueueItem) -> int:
    """Returns how many events an item stands for: a whole run began, retrieved and ended."""
    return 3 if isinstance(item, WholeRun) else 1
