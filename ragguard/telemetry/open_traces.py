"""Remembers the spans of runs that are scored while they are open: a run and each of its steps get one span."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from opentelemetry.trace import Span, SpanContext

KEPT = 1024
"""The most open runs whose spans are remembered; of a further one the oldest run's span is ended as it stands."""


@dataclass(slots=True)
class RunTrace:
    """The spans that were written of one run so far."""

    span: Span | None = None
    """The span that ragguard began for the run and has not ended; None where there is none, or the application has a
    span of the run."""
    targets: dict[str, SpanContext] = field(default_factory=dict)
    """The span of each step's retrieval, by the step's id."""
    decided: set[str] = field(default_factory=set)
    """The ids of the steps whose guard's decision has a span."""
    advised: set[tuple[str, int]] = field(default_factory=set)
    """The advice that has a span: the id of the step, and when the advice was asked for."""


class OpenTraces:
    """The traces of open runs, by the run's id."""

    def __init__(self) -> None:
        self._traces: OrderedDict[str, RunTrace] = OrderedDict()

    def take(self, run_id: str) -> RunTrace:
        """Removes and returns the spans of a run; an empty trace where there are none."""
        return self._traces.pop(run_id, None) or RunTrace()

    def keep(self, run_id: str, trace: RunTrace) -> None:
        """Keeps the spans of a run until more of the run is known."""
        self._traces[run_id] = trace
        if len(self._traces) > KEPT:
            self._end(self._traces.popitem(last=False)[1])

    def end(self) -> None:
        """Ends the spans of all runs that are still open."""
        while self._traces:
            self._end(self._traces.popitem()[1])

    def _end(self, trace: RunTrace) -> None:
        if trace.span is not None:
            trace.span.end()
