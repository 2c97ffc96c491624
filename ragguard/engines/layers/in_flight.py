"""Requests in flight, by key, so that equal questions are asked once.

The first caller that asks for a key is the leader; others follow and wait for its answer. When a leader is
cancelled, or fails in a way that may be its own, its followers ask again, and one of them becomes the leader. A call
never follows a less urgent one. Leaders and followers may live on different event loops.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Generic

from ragguard.engines.requests.base import V
from ragguard.errors import CircuitOpen, EngineError


class Leader(Generic[V]):
    """The one call that asks the engine for some keys."""

    __slots__ = ("_answers", "keys", "priority")

    def __init__(self, priority: int, keys: Iterable[bytes]) -> None:
        self.priority = priority
        self.keys = tuple(keys)
        # Most leaders have no followers, and a future that threads may share is a dozen objects.
        self._answers: Future[Mapping[bytes, V]] | None = None

    def follow(self) -> Future[Mapping[bytes, V]]:
        """Returns a future of the leader's answers, empty when its followers must ask again. To be called before
        `finish`."""
        if self._answers is None:
            self._answers = Future()
            # A follower that stops waiting must not cancel the future for the others.
            self._answers.set_running_or_notify_cancel()
        return self._answers

    def finish(self, answers: Mapping[bytes, V], error: BaseException | None) -> None:
        """Hands the answers, or an error that all would meet, to the followers."""
        if self._answers is None:
            return
        if error is not None and _is_everyones(error):
            self._answers.set_exception(error)
        else:
            self._answers.set_result(answers)


class InFlight(Generic[V]):
    """All keys that are asked for just now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[bytes, Leader[V]] = {}

    def join(
        self, keys: Iterable[bytes], priority: int
    ) -> tuple[Leader[V] | None, list[Future[Mapping[bytes, V]]]]:
        """Returns this caller as the leader of keys that nobody asks for, if there are any, and the futures of the
        other keys."""
        following: dict[Leader[V], Future[Mapping[bytes, V]]] = {}
        alone = []
        with self._lock:
            for key in keys:
                leader = self._by_key.get(key)
                if leader is not None and leader.priority <= priority:
                    following[leader] = leader.follow()
                else:
                    alone.append(key)
            mine = Leader[V](priority, alone) if alone else None
            if mine:
                self._by_key.update(dict.fromkeys(alone, mine))
        return mine, list(following.values())

    def finish(self, leader: Leader[V], answers: Mapping[bytes, V], error: BaseException | None) -> None:
        """Ends a leader's request, with answers or an error. Must be called for every leader."""
        with self._lock:
            for key in leader.keys:
                if self._by_key.get(key) is leader:
                    del self._by_key[key]
        leader.finish(answers, error)


def _is_everyones(error: BaseException) -> bool:
    """Returns True for an error that followers would get, too: a server that is down, but not a leader's own bad
    prompt."""
    return isinstance(error, CircuitOpen) or (isinstance(error, EngineError) and error.retryable)
