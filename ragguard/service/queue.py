"""The queue between the hooks and the writer: first in, first out, bounded by count and by bytes.

Hooks put events in, from any thread and even from inside a garbage collection; one writer takes them out.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")

UNMEASURED = 64
"""The number of waiting items from which on new ones are measured, so that hooks measure only in a burst."""
_AT_ONCE = 64
"""The divisor of the bounds that gives how much is freed when items are dropped, so that not every hook has to drop."""


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """The bounds of the queue, and the policy for items beyond them."""

    items: int = 65_536
    bytes: int = 64 * 2**20
    drop: Literal["oldest", "newest"] = "oldest"
    block: float = 0.0
    """Seconds for which a thread may wait before anything is dropped; a hook on an event loop never waits."""


class EventQueue(Generic[T]):
    """A first-in, first-out queue of items with their sizes in bytes."""

    def __init__(self, bounds: QueueBounds, may_drop: Callable[[T], bool]) -> None:
        """Takes a function that says which items may be dropped; other items are accepted beyond the bounds, up to a
        quarter of the count more."""
        self._bounds, self._may_drop = bounds, may_drop
        self._items: deque[tuple[int, T]] = deque()
        self._bytes = 0
        # Reentrant: a garbage collection may run a hook inside a hook.
        self._changed = threading.Condition(threading.RLock())
        self._woken = self._asleep = False

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> bool:
        """Adds an item where few items wait; else returns False, and `offer` has to be called with the item's size."""
        waiting = len(self._items)
        if waiting >= UNMEASURED:
            return False
        self.append(item)
        if waiting == UNMEASURED - 1:
            self.wake()  # the batch is complete, and the next hook would have to measure its item
        return True

    def append(self, item: T) -> None:
        """Adds an item, however many wait."""
        self._items.append((0, item))
        if self._asleep:
            self.wake()

    def offer(self, item: T, size: int) -> bool:
        """Adds an item where the bounds allow that; returns whether they do."""
        with self._changed:
            if not self._fits(item, size):
                return False
            self._items.append((size, item))
            self._bytes += size
        if self._asleep:
            self.wake()
        return True

    def offer_within(self, item: T, size: int, seconds: float) -> bool:
        """Adds an item as soon as the bounds allow that; returns False where they do not within `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self._fits(item, size), seconds)
            return self.offer(item, size)

    def force(self, item: T, size: int) -> list[T]:
        """Adds an item to a full queue, or drops the item, by the policy; returns the dropped items."""
        if self._bounds.drop == "newest":
            return [] if self.offer(item, size) else [item]
        dropped: list[T] = []
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

    def _fits(self, item: T, size: int) -> bool:
        count = len(self._items)
        if count < self._bounds.items and (self._bytes + size <= self._bounds.bytes or not count):
            return True
        return not self._may_drop(item) and count < self._bounds.items + max(1, self._bounds.items // 4)

    def _drop_oldest(self, size: int) -> list[T]:
        most = self._bounds.items - max(1, self._bounds.items // _AT_ONCE)
        most_bytes = self._bounds.bytes - max(size, self._bounds.bytes // _AT_ONCE)
        kept: list[tuple[int, T]] = []
        dropped: list[T] = []
        while self._items and (len(self._items) + len(kept) > most or self._bytes > most_bytes):
            entry = self._items.popleft()
            if self._may_drop(entry[1]):
                self._bytes -= entry[0]
                dropped.append(entry[1])
            else:
                kept.append(entry)
        self._items.extendleft(reversed(kept))
        return dropped

    def take(self, most: int, most_bytes: int) -> list[T]:
        """Takes out the next items: at most `most`, and no more once they reach `most_bytes`."""
        taken: list[T] = []
        total = 0
        with self._changed:
            while self._items and len(taken) < most and total < most_bytes:
                size, item = self._items.popleft()
                total += size
                taken.append(item)
            self._bytes = self._bytes - total if self._items else 0
            self._changed.notify_all()
        return taken

    def first(self) -> T | None:
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
