"""Reports how many runs wait and how many were lost as metrics: one sum for all sinks of one meter provider.

A meter provider makes one instrument for a name, and asks only the callbacks with which it was made. Without the sum,
the losses of a second RagGuard would never be reported, and the provider would keep the first RagGuard in memory.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from weakref import WeakKeyDictionary, WeakSet

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter_provider

from ragguard.runtime.per_process import PerProcess
from ragguard.telemetry import names as n


class BacklogGauge:
    """Reports the waiting and the lost runs of one sink, as long as it is open."""

    def __init__(self, meter: Meter, provider: MeterProvider | None) -> None:
        self._meter, self._provider = meter, provider
        self._watched: list[tuple[Callable[[], int], Callable[[], Mapping[str, int]]]] = []
        self._instruments: _ProviderInstruments | None = None

    def add(self, waiting: Callable[[], int], lost: Callable[[], Mapping[str, int]]) -> None:
        """Adds the functions of one more RagGuard: how many runs wait, and what was lost, by reason."""
        self._watched.append((waiting, lost))
        if self._instruments is None:
            self._instruments = _ProviderInstruments.of(self._meter, self._provider)
            self._instruments.here.get().open.add(self)

    def close(self) -> None:
        """Ends the report of waiting runs; lost runs stay counted."""
        if self._instruments is not None:
            here = self._instruments.here.get()
            here.lost.update(self.lost())
            here.open.discard(self)
        self._watched, self._instruments = [], None

    def waiting(self) -> int:
        """Returns how many runs wait."""
        return sum(depth() for depth, _ in self._watched)

    def lost(self) -> Counter[str]:
        """Returns what was lost, by reason."""
        counts: Counter[str] = Counter()
        for _, dropped in self._watched:
            counts.update(dropped())
        return counts


class _Gauges:
    """The gauges that one process has made for a provider."""

    def __init__(self) -> None:
        self.open: WeakSet[BacklogGauge] = WeakSet()
        self.lost: Counter[str] = Counter()
        """The losses of gauges that were closed, by reason."""


class _ProviderInstruments:
    """The instruments of one provider, which report the sums of all its sinks."""

    def __init__(self, meter: Meter) -> None:
        self.here = PerProcess(_Gauges)
        _, unit, meaning = n.METRICS["ragguard.queue.depth"]
        meter.create_observable_gauge("ragguard.queue.depth", [self._observe_waiting], unit, meaning)
        _, unit, meaning = n.METRICS["ragguard.dropped"]
        meter.create_observable_counter("ragguard.dropped", [self._observe_lost], unit, meaning)

    @classmethod
    def of(cls, meter: Meter, provider: MeterProvider | None) -> _ProviderInstruments:
        """Returns the instruments of that provider; None is the application's own provider, whenever it is set."""
        key = _APPLICATION if provider is None or provider is get_meter_provider() else provider
        with _lock.get():
            found = _by_provider.get(key)
            if found is None:
                found = _by_provider[key] = cls(meter)
            return found

    def _observe_waiting(self, _: CallbackOptions) -> Iterable[Observation]:
        yield Observation(sum(one.waiting() for one in list(self.here.get().open)))

    def _observe_lost(self, _: CallbackOptions) -> Iterable[Observation]:
        here = self.here.get()
        total = Counter(here.lost)
        for one in list(here.open):
            total.update(one.lost())
        for reason, count in total.items():
            yield Observation(count, {"reason": reason})


class _Application:
    """Stands for the application's own meter provider, which may be set later."""


_APPLICATION = _Application()
_lock = PerProcess(threading.Lock)
_by_provider: WeakKeyDictionary[MeterProvider | _Application, _ProviderInstruments] = WeakKeyDictionary()
