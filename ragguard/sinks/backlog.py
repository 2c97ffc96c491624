"""What waits and what was lost, as metrics: of all who tell one provider of it, together.

A provider makes an instrument of one name once, and what is observed there is asked of whoever made it. So a
second RagGuard's losses would never be heard of, and the first one would be kept alive by the question.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias
from weakref import WeakKeyDictionary, WeakSet

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter_provider

from ragguard.sinks import names as n

Watched: TypeAlias = tuple[Callable[[], int], Callable[[], Mapping[str, int]]]
"""How many runs wait, and what was lost by reason, of one RagGuard."""


class BacklogGauge:
    """Reports the waiting and the lost runs of one sink, as long as it is open."""

    def __init__(self, meter: Meter, provider: MeterProvider | None) -> None:
        self._meter, self._provider = meter, provider
        self._watched: list[Watched] = []
        self._shared: _Shared | None = None

    def add(self, watched: Watched) -> None:
        """From now on one more is asked."""
        self._watched.append(watched)
        if self._shared is None:
            self._shared = _Shared.of(self._meter, self._provider)
            self._shared.open.add(self)

    def close(self) -> None:
        """Nothing waits any more; what was lost is remembered."""
        if self._shared is not None:
            self._shared.lost.update(self.lost())
            self._shared.open.discard(self)
        self._watched, self._shared = [], None

    def waiting(self) -> int:
        """How many runs wait."""
        return sum(depth() for depth, _ in self._watched)

    def lost(self) -> Counter[str]:
        """What was lost, by reason."""
        counts: Counter[str] = Counter()
        for _, dropped in self._watched:
            counts.update(dropped())
        return counts


class _Shared:
    """Those of all sinks of one provider."""

    def __init__(self, meter: Meter) -> None:
        self.open: WeakSet[BacklogGauge] = WeakSet()
        self.lost: Counter[str] = Counter()
        _, unit, meaning = n.METRICS["ragguard.queue.depth"]
        meter.create_observable_gauge("ragguard.queue.depth", [self._observe_waiting], unit, meaning)
        _, unit, meaning = n.METRICS["ragguard.dropped"]
        meter.create_observable_counter("ragguard.dropped", [self._observe_lost], unit, meaning)

    @classmethod
    def of(cls, meter: Meter, provider: MeterProvider | None) -> _Shared:
        """The one of that provider; None is the application's own, whenever it is set."""
        key = _APPLICATION if provider is None or provider is get_meter_provider() else provider
        with _lock:
            found = _by_provider.get(key)
            if found is None:
                found = _by_provider[key] = cls(meter)
            return found

    def _observe_waiting(self, _: CallbackOptions) -> Iterable[Observation]:
        yield Observation(sum(one.waiting() for one in list(self.open)))

    def _observe_lost(self, _: CallbackOptions) -> Iterable[Observation]:
        total = Counter(self.lost)
        for one in list(self.open):
            total.update(one.lost())
        for reason, count in total.items():
            yield Observation(count, {"reason": reason})


class _Application:
    """Stands for the application's own provider, which may be set later."""


_APPLICATION = _Application()
_lock = threading.Lock()
_by_provider: WeakKeyDictionary[MeterProvider | _Application, _Shared] = WeakKeyDictionary()
