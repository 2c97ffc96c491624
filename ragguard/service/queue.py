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
from typing import Generic, TypeVar

from ragguard.capture.events import Event, RunEnded, RunStarted, StepAmended, StepEnded
from ragguard.capture.retrievals import Retrieval, WholeRun
from ragguard.records import Passage, RetrievalStep, Run

EVENT = 1024
"""Bytes of an event itself, without its content."""
_CONTENT: dict[type, tuple[str, ...]] = {
    WholeRun: ("query", "found"),
    Retrieval: ("query", "found", "candidates", "metadata"),
    RetrievalStep: ("query", "passages", "candidates", "metadata"),
    StepAmended: ("passages", "decision", "advice"),
    Run: ("question", "references", "pool", "metadata"),
    RunEnded: ("question", "answer", "references", "pool", "metadata"),
}
"""The attributes that hold the content of an event, or of the record in an event."""
_DEPTH = 6
"""How deep the content of an event is looked into."""
_LONG = 512
"""The number of items that stand for the rest of a list that is longer."""
_SAMPLE = 6
"""The number of collections and objects at one depth that stand for the others."""
_FLAT = frozenset({str, bytes, int, float, bool, NoneType})


def size_of(event: Event | WholeRun) -> int:
    """Returns about how many bytes an event holds. Texts count in full, also where others hold them as well."""
    held: object = event
    if isinstance(event, RunStarted | StepEnded):
        held = event.content
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


UNMEASURED = 64
"""The number of waiting items from which on new ones are measured, so that hooks measure only in a burst."""
_AT_ONCE = 64
"""The divisor of the bounds that gives how much is freed when items are dropped, so that not every hook has to drop."""


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """The bounds of the queue; beyond them the oldest items are dropped."""

    items: int = 65_536
    bytes: int = 64 * 2**20
    block: float = 0.0
    """Seconds for which a thread may wait before anything is dropped; a hook on an event loop never waits."""


T_co = TypeVar("T_co", covariant=True)


@dataclass(slots=True)
class WriterJob(Generic[T_co]):
    """A function that the writer calls in the order of the queue."""

    work: Callable[[], T_co]
    done: Future[T_co]
    awaits_disk: bool = False
    """True where the function is called once what came before it is on the disk; it fails where the disk fails."""

    def run(self) -> None:
        """Calls the function; its result or its error goes into the future."""
        if self.done.set_running_or_notify_cancel():
            try:
                self.done.set_result(self.work())
            except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
                self.done.set_exception(error)

    def fail(self, error: Exception) -> None:
        """Ends the job without calling the function, unless it has ended."""
        if not self.done.done() and self.done.set_running_or_notify_cancel():
            self.done.set_exception(error)


QueueItem = Event | WholeRun | WriterJob[object]


def may_drop(item: QueueItem) -> bool:
    """Returns whether a full queue may drop the item.

    The queue keeps the end of a run, which is small and ends a run that is stored already; jobs, for which a caller
    waits; and the start of a run that goes on, without which its events would be a run of their own.
    """
    if type(item) is RunStarted:
        return not item.names.resumes
    return not isinstance(item, RunEnded | WriterJob)


class EventQueue:
    """A first-in, first-out queue of items with their sizes in bytes."""

    def __init__(self, bounds: QueueBounds) -> None:
        """Takes the bounds; items that may not be dropped are accepted up to a quarter of the count beyond them."""
        self._bounds = bounds
        self._items: deque[tuple[int, QueueItem]] = deque()
        self._bytes = 0
        # Reentrant: a garbage collection may run a hook inside a hook.
        self._changed = threading.Condition(threading.RLock())
        self._asleep = False
        """True while the writer waits for the next item, which then has to notify it."""
        self._hurried = False
        """True where the items are to be taken out at once."""

    def __len__(self) -> int:
        return len(self._items)

    def append(self, item: QueueItem) -> None:
        """Adds an item, however many wait. Takes no lock unless the writer sleeps."""
        self._items.append((0, item))
        self._wake_sleeper()

    def hurry(self, item: QueueItem | None = None) -> None:
        """Adds an item, where one is given, and has the writer take all items now."""
        with self._changed:
            if item is not None:
                self._items.append((0, item))
            self._hurried = True
            self._changed.notify_all()

    def offer(self, item: QueueItem, size: int) -> bool:
        """Adds an item where the bounds allow that; returns whether they do."""
        with self._changed:
            if not self.fits(item, size):
                return False
            self._items.append((size, item))
            self._bytes += size
        self._wake_sleeper()
        return True

    def force(self, item: QueueItem, size: int) -> list[QueueItem]:
        """Adds an item to a full queue; returns the items that are dropped for it, the oldest."""
        with self._changed:
            dropped = [] if self.fits(item, size) else self._drop_oldest(size)
            if not self.offer(item, size):
                dropped.append(item)
        return dropped

    def wait(self, until: Callable[[], object], seconds: float) -> None:
        """Waits until a condition holds, at most for `seconds`. It is looked at when items were taken out, and when the
        writer was hurried or woken."""
        with self._changed:
            self._changed.wait_for(until, seconds)

    def rest(self, seconds: float) -> None:
        """Waits until the writer is hurried, at most for `seconds`. A new item does not end the wait."""
        self.wait(lambda: self._hurried, seconds)

    def sleep(self, seconds: float) -> None:
        """Waits for an item, at most for `seconds`. Only one thread may wait."""
        self._asleep = True
        self.wait(lambda: self._hurried or self._items, seconds)
        self._asleep = False

    @property
    def crowded(self) -> bool:
        """True while the queue is more than half full."""
        return 2 * len(self._items) > self._bounds.items or 2 * self._bytes > self._bounds.bytes

    def fits(self, item: QueueItem, size: int) -> bool:
        """Returns whether the bounds allow an item."""
        count = len(self._items)
        if count < self._bounds.items and (self._bytes + size <= self._bounds.bytes or not count):
            return True
        return not may_drop(item) and count < self._bounds.items + max(1, self._bounds.items // 4)

    def take(self, most: int, most_bytes: int) -> list[QueueItem]:
        """Takes out the next items: at most `most`, and no more once they reach `most_bytes`."""
        taken: list[QueueItem] = []
        total = 0
        with self._changed:
            self._hurried = False
            while self._items and len(taken) < most and total < most_bytes:
                size, item = self._items.popleft()
                total += size
                taken.append(item)
            self._bytes = self._bytes - total if self._items else 0
            self._changed.notify_all()
        return taken

    def _wake_sleeper(self) -> None:
        if self._asleep:
            self._asleep = False  # one hook pays for it, and not all until the writer runs
            with self._changed:
                self._changed.notify_all()

    def _drop_oldest(self, size: int) -> list[QueueItem]:
        most = self._bounds.items - max(1, self._bounds.items // _AT_ONCE)
        most_bytes = self._bounds.bytes - max(size, self._bounds.bytes // _AT_ONCE)
        kept: list[tuple[int, QueueItem]] = []
        dropped: list[QueueItem] = []
        while self._items and (len(self._items) + len(kept) > most or self._bytes > most_bytes):
            entry = self._items.popleft()
            if may_drop(entry[1]):
                self._bytes -= entry[0]
                dropped.append(entry[1])
            else:
                kept.append(entry)
        self._items.extendleft(reversed(kept))
        return dropped
