"""The metrics of scored runs, by the names and units of `names.METRICS`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from opentelemetry.metrics import Meter

from ragguard.records import Score, ScoredRun, Usage
from ragguard.telemetry import names as n
from ragguard.telemetry.attributes import score_name
from ragguard.telemetry.values import identifier

T = TypeVar("T")


class Instruments:
    """Records scored runs as OpenTelemetry metrics."""

    def __init__(self, meter: Meter) -> None:
        self._score = _made(meter.create_histogram, "ragguard.evaluation.score")
        self._duration = _made(meter.create_histogram, "ragguard.evaluation.duration")
        self._guard = _made(meter.create_histogram, "ragguard.guard.duration")
        self._failures = _made(meter.create_counter, "ragguard.evaluation.failures")
        self._tokens = _made(meter.create_counter, "ragguard.usage.tokens")
        self._requests = _made(meter.create_counter, "ragguard.usage.requests")

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
        for failure in scored.failures:
            self._failures.add(
                1, {"scorer": identifier(failure.scorer), n.ERROR_TYPE: identifier(failure.error)}
            )
        if scored.run.ended_ns and scored.ended_ns:
            self._duration.record(max(0, scored.ended_ns - scored.run.ended_ns) / 1e9)
        for step in scored.run.steps if scored.run.status != "open" else ():
            if step.decision is not None:
                self._guard.record(step.decision.elapsed_ms, {"status": step.decision.status})
        self._spend(scored.scores)

    def _spend(self, scores: Sequence[Score]) -> None:
        for engine in {score.engine for score in scores}:
            usage = sum((score.usage for score in scores if score.engine == engine), Usage())
            model = identifier(engine)
            self._tokens.add(usage.prompt_tokens, {"model": model, "type": "input"})
            self._tokens.add(usage.output_tokens, {"model": model, "type": "output"})
            self._requests.add(usage.requests, {"model": model})


def _made(create: Callable[[str, str, str], T], name: str) -> T:
    """Returns the instrument of this name, with its unit and its meaning."""
    _, unit, meaning = n.METRICS[name]
    return create(name, unit, meaning)
