"""Flights: who is asking what just now, so that equal questions are asked once.

The first to ask for a key leads; others follow and wait for its answer. A leader that is cancelled,
or fails in a way that may be its own, hands over: its followers ask again, and one of them leads. A
call never follows a less urgent one. Leaders and followers may live on different event loops.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Generic, TypeVar

from ragguard.errors import CircuitOpen, EngineError

_Value = TypeVar("_Value")


class Flight(Generic[_Value]):
    """One leader's way to the engine and back, with the keys it answers for."""

    __slots__ = ("_landed", "keys", "priority")

    def __init__(self, priority: int, keys: Iterable[bytes]) -> None:
        self.priority = priority
        self.keys = tuple(keys)
        # Most flights have no followers, and a future that threads may share is a dozen objects.
        self._landed: Future[Mapping[bytes, _Value]] | None = None

    def follow(self) -> Future[Mapping[bytes, _Value]]:
        """What the leader will bring back; nothing when it hands over. Before it has landed."""
        if self._landed is None:
            self._landed = Future()
            # A follower that stops waiting must not cancel it for the others.
            self._landed.set_running_or_notify_cancel()
        return self._landed

    def land(self, answers: Mapping[bytes, _Value], error: BaseException | None) -> None:
        if self._landed is None:
            return
        if error is not None and _is_everyones(error):
            self._landed.set_exception(error)
        else:
            self._landed.set_result(answers)


class Flights(Generic[_Value]):
    """All flights under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[bytes, Flight[_Value]] = {}

    def board(
        self, keys: Iterable[bytes], priority: int
    ) -> tuple[Flight[_Value] | None, list[Future[Mapping[bytes, _Value]]]]:
        """The flight that this caller must lead, if any, and what those bring back that it may follow."""
        following: dict[Flight[_Value], Future[Mapping[bytes, _Value]]] = {}
        alone = []
        with self._lock:
            for key in keys:
                flight = self._by_key.get(key)
                if flight is not None and flight.priority <= priority:
                    following[flight] = flight.follow()
                else:
                    alone.append(key)
            mine = Flight[_Value](priority, alone) if alone else None
            if mine:
                self._by_key.update(dict.fromkeys(alone, mine))
        return mine, list(following.values())

    def land(
        self, flight: Flight[_Value], answers: Mapping[bytes, _Value], error: BaseException | None
    ) -> None:
        """The leader is back, with answers or without. Must be called, whatever happened."""
        with self._lock:
            for key in flight.keys:
                if self._by_key.get(key) is flight:
                    del self._by_key[key]
        flight.land(answers, error)


def _is_everyones(error: BaseException) -> bool:
    """Whether followers would meet the same: a server that is down, but not a leader's own bad prompt."""
    return isinstance(error, CircuitOpen) or (isinstance(error, EngineError) and error.retryable)
