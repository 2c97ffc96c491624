"""Reports how many runs wait and how many were lost as metrics: one series for each sink, identified by its number.

A meter provider makes one instrument for a name of a scope, and asks only the callbacks with which it was made: so each
sink has a scope of its own, and a back end adds up the series.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import count

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter

from ragguard._version import __version__
from ragguard.telemetry import names as n

_numbers = count(1)


class BacklogGauge:
    """Reports the waiting and the lost runs of one sink, as long as it is open."""

    def __init__(self, provider: MeterProvider | None) -> None:
        self._provider, self._number, self._process = provider, next(_numbers), os.getpid()
        self._watched: list[tuple[Callable[[], int], Callable[[], Mapping[str, int]]]] = []
        self._lost_before: Counter[str] = Counter()
        """The losses up to `close`, by reason."""
        self._made = False

    def add(self, waiting: Callable[[], int], lost: Callable[[], Mapping[str, int]]) -> None:
        """Adds the functions of one more RagGuard: how many runs wait, and what was lost, by reason."""
        self._watched.append((waiting, lost))
        if self._made:
            return
        self._made = True
        meter = get_meter("ragguard", __version__, self._provider, attributes={n.SINK: self._number})
        _, unit, meaning = n.METRICS["ragguard.queue.depth"]
        meter.create_observable_gauge("ragguard.queue.depth", [self._observe_waiting], unit, meaning)
        _, unit, meaning = n.METRICS["ragguard.dropped"]
        meter.create_observable_counter("ragguard.dropped", [self._observe_lost], unit, meaning)

    def close(self) -> None:
        """Ends the report of waiting runs, and lets go of the RagGuards; lost runs stay counted."""
        self._lost_before = self._lost()
        self._watched = []

    def _lost(self) -> Counter[str]:
        """Returns what was lost, by reason."""
        counts = Counter(self._lost_before)
        for _, dropped in self._watched:
            counts.update(dropped())
        return counts

    def _observe_waiting(self, _: CallbackOptions) -> Iterable[Observation]:
        if self._process == os.getpid():  # a forked child inherits the callbacks of its parent
            yield Observation(sum(depth() for depth, _ in self._watched), {n.SINK: self._number})

    def _observe_lost(self, _: CallbackOptions) -> Iterable[Observation]:
        for reason, lost in self._lost().items() if self._process == os.getpid() else ():
            yield Observation(lost, {"reason": reason, n.SINK: self._number})
