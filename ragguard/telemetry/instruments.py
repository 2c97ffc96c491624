"""The metrics of scored runs, and of how many runs wait or were lost, by the names and units of `names.METRICS`.

A meter provider makes one instrument for a name of a scope, and asks only the callbacks with which it was made: so each
sink has a scope of its own for what waits and what was lost, one series each, and a back end adds them up.
"""

from __future__ import annotations

import math
import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from itertools import count

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter

from ragguard._version import __version__
from ragguard.records import ScoredRun, Usage
from ragguard.telemetry import names as n
from ragguard.telemetry.attributes import score_name
from ragguard.telemetry.values import identifier

_MOST_OPEN = 4096
"""The most open runs whose counted costs are remembered."""


class Instruments:
    """Records scored runs as OpenTelemetry metrics."""

    def __init__(self, meter: Meter) -> None:
        self._score = meter.create_histogram(*_described("ragguard.evaluation.score"))
        self._runs = meter.create_counter(*_described("ragguard.runs"))
        self._duration = meter.create_histogram(*_described("ragguard.evaluation.duration"))
        self._guard = meter.create_histogram(*_described("ragguard.guard.duration"))
        self._failures = meter.create_counter(*_described("ragguard.evaluation.failures"))
        self._tokens = meter.create_counter(*_described("ragguard.usage.tokens"))
        self._counted: OrderedDict[str, dict[tuple[str | int, ...], Usage]] = OrderedDict()
        """The costs of open runs that were counted, by run and by the scores' keys."""
        self._requests = meter.create_counter(*_described("ragguard.usage.requests"))

    def record(self, scored: ScoredRun) -> None:
        """Adds one scored run to all metrics."""
        for score in scored.scores:
            # A run's scores are counted at its end; a nan would make the sum of its histogram nan.
            if score.provisional or not math.isfinite(score.value):
                continue
            labels: dict[str, str] = {
                n.GEN_AI_EVALUATION: identifier(score_name(score)),
                n.SCORE_LEVEL: score.level,
                n.SCORE_REFERENCE: score.reference_source,
                n.SCORE_SIGN: "negative" if score.value < 0 else "positive",
            }
            # Histograms refuse negative values: the absolute value is recorded, with the sign as an attribute.
            self._score.record(abs(float(score.value)), labels)
        if scored.run.cause and scored.run.status != "open":
            self._runs.add(1, {n.RUN_CAUSE: scored.run.cause})
        for failure in scored.failures:
            self._failures.add(
                1, {"scorer": identifier(failure.scorer), n.ERROR_TYPE: identifier(failure.error)}
            )
        if scored.run.ended_ns and scored.ended_ns:
            self._duration.record(max(0, scored.ended_ns - scored.run.ended_ns) / 1e9)
        for step in scored.run.steps if scored.run.status != "open" else ():
            if step.decision is not None:
                self._guard.record(step.decision.elapsed_ms, {"status": step.decision.status})
        self._count_costs(scored)

    def _count_costs(self, scored: ScoredRun) -> None:
        """Counts what was not counted yet: a score's cost holds that of the provisional scores which it replaces."""
        known = self._counted.pop(scored.run.id, {})
        for score in scored.scores:
            usage, before = score.usage, known.get(score.key, Usage())
            model = identifier(score.engine)
            more = max(0, usage.prompt_tokens - before.prompt_tokens)
            self._tokens.add(more, {"model": model, "type": "input"})
            more = max(0, usage.output_tokens - before.output_tokens)
            self._tokens.add(more, {"model": model, "type": "output"})
            self._requests.add(max(0, usage.requests - before.requests), {"model": model})
        if scored.run.status == "open":
            self._counted[scored.run.id] = known | {score.key: score.usage for score in scored.scores}
            if len(self._counted) > _MOST_OPEN:
                self._counted.popitem(last=False)


def _described(name: str) -> tuple[str, str, str]:
    """Returns the name of an instrument, its unit and its meaning."""
    _, unit, meaning = n.METRICS[name]
    return name, unit, meaning


_numbers = count(1)


class BacklogGauge:
    """Reports the waiting and the lost runs of one sink, as long as it is open."""

    def __init__(self, provider: MeterProvider | None) -> None:
        self._provider, self._number, self._process = provider, next(_numbers), os.getpid()
        self._watched: list[tuple[Callable[[], int], Callable[[], Mapping[str, int]]]] = []

    def add(self, waiting: Callable[[], int], lost: Callable[[], Mapping[str, int]]) -> None:
        """Adds the functions of one more RagGuard: how many runs wait, and what was lost, by reason."""
        self._watched.append((waiting, lost))
        if len(self._watched) > 1:
            return
        meter = get_meter("ragguard", __version__, self._provider, attributes={n.SINK: self._number})
        name, *about = _described("ragguard.queue.depth")
        meter.create_observable_gauge(name, [self._observe_waiting], *about)
        name, *about = _described("ragguard.dropped")
        meter.create_observable_counter(name, [self._observe_lost], *about)

    def close(self) -> None:
        """Ends the report of waiting runs, and lets go of the RagGuards; lost runs stay counted."""
        lost = self._lost()
        self._watched = [(lambda: 0, lambda: lost)]

    def _lost(self) -> Counter[str]:
        """Returns what was lost, by reason."""
        counts = Counter[str]()
        for _, dropped in self._watched:
            counts.update(dropped())
        return counts

    def _observe_waiting(self, _: CallbackOptions) -> Iterable[Observation]:
        if self._process == os.getpid():  # a forked child inherits the callbacks of its parent
            yield Observation(sum(depth() for depth, _ in self._watched), {n.SINK: self._number})

    def _observe_lost(self, _: CallbackOptions) -> Iterable[Observation]:
        for reason, lost in self._lost().items() if self._process == os.getpid() else ():
            yield Observation(lost, {"reason": reason, n.SINK: self._number})
