"""The queue between the hooks and the writer: first in, first out, bounded by count and by bytes; its items and their
sizes, which runs lost some, and to whom the writer reports.

Hooks put events in, from any thread and even from inside a garbage collection; one writer takes them out. The size of
an event is estimated: near enough to bound a queue, and in microseconds.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from sys import getsizeof
from types import NoneType
from typing import Final, Generic, Protocol, TypeVar

from ragguard.capture.events import Event, OneStepRun, RunEnded, RunStarted, StepAmended, StepEnded
from ragguard.capture.open_runs import Retrieval, WholeRun
from ragguard.records import Passage, RetrievalStep


class WriterListener(Protocol):
    """The owner of a writer, which is told of its progress."""

    def started(self) -> None:
        """Reports that the writer was started; called once, by the thread that captured first."""
        ...

    @property
    def waits_for_steps(self) -> bool:
        """True where a step that ends now would be scored at once."""
        ...

    def runs_due(self) -> None:
        """Reports that runs have ended and are stored; called on the writer's thread."""
        ...

    def steps_ended(self, changed: Mapping[str, bool]) -> None:
        """Reports that steps of open runs have ended or changed and are stored: the ids of these runs, each with
        whether other steps of the turn are still open. Called on the writer's thread."""
        ...

    def tick(self) -> None:
        """Does the owner's housekeeping; called on the writer's thread every `tick_seconds`."""
        ...


EVENT = 1024
"""Bytes of an event itself, without its content."""
_LOOKS = 2000
"""The most objects that are looked at."""
_LONG = 512
"""The number of items that stand for the rest of a list that is longer."""
_SAMPLE = 6
"""The number of items of a list, collections or objects, that stand for the others."""
_FLAT = frozenset({str, bytes, int, float, bool, NoneType})


def size_of(event: Event | WholeRun) -> int:
    """Returns about how many bytes an event holds. Texts count in full, also where others hold them as well."""
    try:
        return EVENT + _Walk().size(_content(event))
    except Exception:  # noqa: BLE001 - an object of the user's may raise anything when it is read
        return EVENT


def _content(event: Event | WholeRun) -> tuple[object, ...]:
    match event:
        case WholeRun():
            return event.query, event.found
        case StepEnded():
            return _held(event.content)
        case OneStepRun():
            return _held(event.step)
        case RunEnded():
            return event.answer, event.question, event.references, event.pool, event.metadata
        case StepAmended():
            return event.passages, event.decision, event.advice
        case RunStarted():
            return (event.content,)


def _held(step: object) -> tuple[object, ...]:
    if isinstance(step, RetrievalStep):
        return (step.query, step.passages, step.metadata)
    if isinstance(step, Retrieval):
        return (step.query, step.found, step.candidates, step.metadata)
    return (step,)


class _Walk:
    """Walks over some objects; ends after `_LOOKS` of them, also where they form a reference cycle."""

    def __init__(self) -> None:
        self._left = _LOOKS

    def size(self, value: object) -> int:
        """Returns about how many bytes a value has, with its content."""
        return getsizeof(value) + self._inside(value)

    def _inside(self, value: object) -> int:
        """Returns about how many bytes the content of a value has."""
        if self._left <= 0 or type(value) in _FLAT:
            return 0
        if isinstance(value, dict):
            return self._several(list(value.values())) if value else 0
        if isinstance(value, (list, tuple, set, frozenset)):
            return self._several(list(value)) if value else 0
        if isinstance(value, Passage):
            return self._several([value.text, value.metadata or None])
        held = getattr(value, "__dict__", None)
        if type(held) is dict:
            return self._several(list(held.values()))
        nbytes = getattr(value, "nbytes", None)  # arrays
        return nbytes if type(nbytes) is int else 0

    def _several(self, values: list[object]) -> int:
        """Returns about how many bytes the items of a collection have. Texts count one by one; the others by a
        sample, since a hook has little time."""
        seen = _spread(values, _LONG)
        self._left -= 1 + len(seen)
        size = sum(map(getsizeof, seen))
        if others := [one for one in seen if type(one) not in _FLAT]:
            looked_at = _spread(others, _SAMPLE)
            size += sum(map(self._inside, looked_at)) * len(others) // len(looked_at)
        return size * len(values) // len(seen) if seen else 0


def _spread(values: list[object], most: int) -> list[object]:
    """Returns at most `most` of the values, evenly spread."""
    if len(values) <= most:
        return values
    # Snapshots hold several parts of each document in turn: a stride that divides their number meets one part alone.
    stride = -(-len(values) // most) | 1
    return values[:: stride if stride % 3 else stride + 2]


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


class EventQueue:
    """A first-in, first-out queue of items with their sizes in bytes."""

    def __init__(self, bounds: QueueBounds) -> None:
        """Takes the bounds; items that may not be dropped are accepted up to a quarter of the count beyond them."""
        self._bounds = bounds
        self._items: deque[tuple[int, QueueItem]] = deque()
        self._bytes = 0
        # Reentrant: a garbage collection may run a hook inside a hook.
        self._changed = threading.Condition(threading.RLock())
        self._woken = self._asleep = False

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: QueueItem) -> bool:
        """Adds an item where few items wait; else returns False, and `offer` has to be called with the item's size."""
        waiting = len(self._items)
        if waiting >= UNMEASURED:
            return False
        self.append(item)
        if waiting == UNMEASURED - 1:
            self.wake()  # the batch is complete, and the next hook would have to measure its item
        return True

    def append(self, item: QueueItem) -> None:
        """Adds an item, however many wait."""
        self._items.append((0, item))
        if self._asleep:
            self.wake()

    def offer(self, item: QueueItem, size: int) -> bool:
        """Adds an item where the bounds allow that; returns whether they do."""
        with self._changed:
            if not self._fits(item, size):
                return False
            self._items.append((size, item))
            self._bytes += size
        if self._asleep:
            self.wake()
        return True

    def offer_within(self, item: QueueItem, size: int, seconds: float) -> bool:
        """Adds an item as soon as the bounds allow that; returns False where they do not within `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self._fits(item, size), seconds)
            return self.offer(item, size)

    def force(self, item: QueueItem, size: int) -> list[QueueItem]:
        """Adds an item to a full queue; returns the items that are dropped for it, the oldest."""
        dropped: list[QueueItem] = []
        with self._changed:
            if not self._fits(item, size):
                dropped = self._drop_oldest(size)
            if not self.offer(item, size):
                dropped.append(item)
        return dropped

    def wait_below_half(self, seconds: float) -> None:
        """Waits until the queue is less than half full, at most for `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: not self.crowded, seconds)

    @property
    def crowded(self) -> bool:
        """True while the queue is more than half full."""
        return 2 * len(self._items) > self._bounds.items or 2 * self._bytes > self._bounds.bytes

    @property
    def full(self) -> bool:
        """True while the bounds allow no further item."""
        return len(self._items) >= self._bounds.items or self._bytes >= self._bounds.bytes

    def _fits(self, item: QueueItem, size: int) -> bool:
        count = len(self._items)
        if count < self._bounds.items and (self._bytes + size <= self._bounds.bytes or not count):
            return True
        return not may_drop(item) and count < self._bounds.items + max(1, self._bounds.items // 4)

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

    def take(self, most: int, most_bytes: int) -> list[QueueItem]:
        """Takes out the next items: at most `most`, and no more once they reach `most_bytes`."""
        taken: list[QueueItem] = []
        total = 0
        with self._changed:
            while self._items and len(taken) < most and total < most_bytes:
                size, item = self._items.popleft()
                total += size
                taken.append(item)
            self._bytes = self._bytes - total if self._items else 0
            self._changed.notify_all()
        return taken

    def first(self) -> QueueItem:
        """Returns the next item and leaves it in the queue; None where none waits. Called by the writer alone."""
        with suppress(IndexError):  # a full queue may drop it meanwhile
            return self._items[0][1]
        return None

    def sleep(self, seconds: float) -> None:
        """Waits for an item or a wake, at most for `seconds`. Only one thread may wait."""
        self._asleep = True
        if not self._items:
            self.rest(seconds)
        self._asleep = False

    def rest(self, seconds: float) -> bool:
        """Waits for a wake, at most for `seconds`; returns whether one came. A new item does not end the wait."""
        with self._changed:
            self._changed.wait_for(lambda: self._woken, seconds)
            woken, self._woken = self._woken, False
        return woken

    def wake(self) -> None:
        """Ends the writer's wait, now or as soon as it waits."""
        self._asleep = False
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def forget_wakes(self) -> None:
        """Forgets the wakes so far: they were for items that are taken out already."""
        self._woken = False


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


LOST: Final = "ragguard.events_lost"
"""Metadata key of a run that says how many of its events were lost."""
RUNS_KEPT = 10_000
"""The most runs with lost events that are remembered until they end."""


class LostEvents:
    """The numbers of lost events of runs that have not ended in the store."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}

    def note(self, events: Sequence[QueueItem]) -> int:
        """Takes events that are lost; returns how many there are. Called from any thread."""
        number = 0
        for event in events:
            number += events_in(event)
            run_id = getattr(event, "run_id", "")
            if run_id and (run_id in self._of or len(self._of) < RUNS_KEPT):
                self._of[run_id] = self._of.get(run_id, 0) + 1
        return number

    def marked(self, event: Event) -> Event:
        """Returns an event as it is to be written: the end of a run that lost events has their number in its
        metadata."""
        if isinstance(event, RunEnded) and (lost := self._of.pop(event.run_id, 0)):
            return replace(event, metadata={**event.metadata, LOST: lost})
        return event
