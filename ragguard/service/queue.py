"""The queue between the hooks and the writer: first in, first out, bounded by count and by bytes.

Hooks put events in, from any thread and even from inside a garbage collection; one writer takes them out. The size of
an event is estimated: near enough to bound a queue, and in microseconds.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from sys import getsizeof
from types import NoneType
from typing import Any

from ragguard.capture.events import Event, RunEnded, RunStarted, StepAmended, StepEnded
from ragguard.capture.retrievals import Retrieval, WholeRun
from ragguard.records import Passage, RetrievalStep, Run

EVENT = 1024
"""Bytes of an event itself, without its content."""
_CONTENT: dict[type, tuple[str, ...]] = {
    WholeRun: ("query", "result"),
    Retrieval: ("query", "result", "candidates", "metadata"),
    RetrievalStep: ("query", "passages", "candidates", "metadata"),
    StepAmended: ("passages", "decision", "advice"),
    Run: ("question", "references", "pool", "metadata"),
    RunEnded: ("question", "answer", "references", "pool", "metadata"),
}
"""The attributes that hold the content of an event, or of the record in an event."""
_DEPTH = 6
"""How deep the content of an event is looked into."""
_LONG = 512
"""The most items of a list that are measured; a longer list is taken to have items of the same size throughout."""
_SAMPLE = 6
"""The most collections and objects of one depth whose content is measured; the others are taken to be like them."""
_FLAT = frozenset({str, bytes, int, float, bool, NoneType})


def size_of(event: Event | WholeRun) -> int:
    """Returns about how many bytes an event holds. Texts count in full, also where others hold them as well."""
    held: object = event
    if isinstance(event, RunStarted | StepEnded):
        held = getattr(event.made, "__self__", getattr(event.made, "args", event.made))  # made or not
    try:
        names = next((names for kind, names in _CONTENT.items() if isinstance(held, kind)), ())
        content = held if type(held) is tuple else [getattr(held, name) for name in names]
        different = {id(value): value for value in content}  # passages are often the candidates
        return EVENT + _size([*different.values()])
    except Exception:  # noqa: BLE001 - an object of the user's may raise anything when it is read
        return EVENT


def _size(values: list[object]) -> int:
    """Returns about how many bytes some values have with their content. Texts count one by one, other objects by a
    sample of each depth, since a hook has little time."""
    size, times = 0.0, 1.0
    for _ in range(_DEPTH):
        seen = values
        if len(values) > _LONG:
            seen, times = values[:_LONG], times * len(values) / _LONG
        size += times * sum(map(getsizeof, seen))
        others = [one for one in seen if type(one) not in _FLAT]
        if not others:
            break
        times *= max(1.0, len(others) / _SAMPLE)
        values = [inner for one in others[:_SAMPLE] for inner in _items(one)]
    return int(size)


def _items(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, list | tuple | set | frozenset):
        return value
    if isinstance(value, Passage):
        return value.text, value.metadata
    held = getattr(value, "__dict__", None)
    return held.values() if type(held) is dict else ()


@dataclass(slots=True)
class WriterJob:
    """A function that the writer calls behind what was put into the queue before."""

    work: Callable[[], Any]
    done: Future[Any]
    awaits_disk: bool = False
    """True where the job fails as soon as the disk does not take what was put in before."""

    def end(self, error: Exception | None = None) -> None:
        """Calls the function, unless there is an error; the result or the error goes into the future, once."""
        if not self.done.done() and self.done.set_running_or_notify_cancel():
            try:
                self.done.set_exception(error) if error else self.done.set_result(self.work())
            except BaseException as raised:  # noqa: BLE001 - whoever waits for it gets it
                self.done.set_exception(raised)


QueueItem = Event | WholeRun | WriterJob


class EventQueue:
    """A queue of events and jobs, each with its size in bytes; 0 where that was not measured."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._items: deque[tuple[int, QueueItem]] = deque()
        self._bytes = 0
        # Reentrant: a garbage collection may run a hook inside a hook.
        self._changed = threading.Condition(threading.RLock())
        """Notified when items were taken out, and when the writer is woken."""
        self._asleep = False
        """True while the writer waits for the next item, which then has to notify it."""
        self.hurried = False
        """True where the items are to be taken out at once."""

    def __len__(self) -> int:
        return len(self._items)

    def append(self, item: QueueItem) -> None:
        """Adds an item, however many wait. Takes no lock unless the writer sleeps."""
        self._items.append((0, item))
        if self._asleep:
            self._asleep = False  # one hook pays for it, and not all until the writer runs
            with self._changed:
                self._changed.notify_all()

    def hurry(self) -> None:
        """Has the writer take all items now."""
        with self._changed:
            self.hurried = True
            self._changed.notify_all()

    def wait(self, until: Callable[[], object], seconds: float) -> None:
        """Waits until a condition holds, at most for `seconds`. It is looked at when items were taken out, and when the
        writer was hurried or woken."""
        with self._changed:
            self._changed.wait_for(until, seconds)

    def sleep(self, seconds: float) -> None:
        """Waits for an item, at most for `seconds`. Only the writer may wait."""
        self._asleep = True
        self.wait(lambda: self.hurried or self._items, seconds)
        self._asleep = False

    @property
    def crowded(self) -> bool:
        """True while the queue is more than half full."""
        return 2 * len(self._items) > self._most or 2 * self._bytes > self._most_bytes

    def offer(self, item: QueueItem, size: int) -> list[QueueItem]:
        """Adds an item within the bounds: takes out the oldest items where it does not fit, a 64th of the bounds at
        once, so that not every hook has to. Returns these."""
        dropped: list[QueueItem] = []
        with self._changed:
            if len(self._items) >= self._most or self._bytes + size > self._most_bytes:
                most = self._most - max(1, self._most // 64)
                most_bytes = self._most_bytes - max(size, self._most_bytes // 64)
                while self._items and (len(self._items) > most or self._bytes > most_bytes):
                    freed, oldest = self._items.popleft()
                    self._bytes -= freed
                    dropped.append(oldest)
            self._items.append((size, item))
            self._bytes += size
        return dropped

    def take(self, most: int, most_bytes: int) -> list[QueueItem]:
        """Takes out the next items: at most `most`, and no more once they reach `most_bytes`."""
        taken: list[QueueItem] = []
        total = 0
        with self._changed:
            self.hurried = False
            while self._items and len(taken) < most and total < most_bytes:
                size, item = self._items.popleft()
                total += size
                taken.append(item)
            self._bytes = self._bytes - total if self._items else 0
            self._changed.notify_all()
        return taken
