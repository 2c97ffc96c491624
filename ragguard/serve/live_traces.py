"""Shows traces that are not complete as open runs, whose steps are scored as they end.

An exporter sends a span when it has ended, a trace's root last. Until then a run is known by the root that is missing,
once all spans that came hang on that one; its question, by what a model or an agent inside it was asked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from ragguard.capture.emitter import EventIntake
from ragguard.capture.events import RunEnded, RunStarted, StepEnded
from ragguard.errors import InvalidInput
from ragguard.traces.runs import run_so_far
from ragguard.traces.spool import Spool

MOST_AT_ONCE = 16
"""The most traces that are read in one go, the latest first; of the others the end alone is scored."""
_LISTED = 256
"""The most traces among which these are chosen."""
_KEPT = 4096
"""The most traces of which it is kept what is shown of them."""
_GROWTH = 1.1
"""The growth of a trace after which it is read again, so that the readings of a large one do not cost too much."""
_PATIENCE = 5.0
"""Seconds after which one is read again that has grown by less."""


@dataclass(slots=True)
class _Shown:
    """The part of a trace that is shown."""

    spans: int = 0
    """The number of its spans when it was read last."""
    read_at: float = 0.0
    run_id: str = ""
    steps: set[str] = field(default_factory=set)


class LiveTraces:
    """The traces of a spool that are shown as open runs. Not for several threads at once."""

    def __init__(self, take: EventIntake, spool: Spool) -> None:
        self._take, self._spool = take, spool
        self._shown: OrderedDict[str, _Shown] = OrderedDict()

    def look(self, now: float) -> None:
        """Shows what is new in the traces whose roots have not ended."""
        read = 0
        for trace, spans in self._spool.growing(now - 2 * _PATIENCE, _LISTED):
            shown = self._shown.setdefault(trace, _Shown())
            due = spans >= shown.spans * _GROWTH or now >= shown.read_at + _PATIENCE
            if spans > shown.spans and due and read < MOST_AT_ONCE:
                shown.spans, shown.read_at, read = spans, now, read + 1
                self._show(trace, shown)
        while len(self._shown) > _KEPT:
            self._shown.popitem(last=False)

    def ended(self, trace: str, runs: Collection[str]) -> None:
        """Takes back what is shown of a trace under another id than those of the runs that it has become."""
        shown = self._shown.pop(trace, None)
        if shown is not None and shown.run_id and shown.run_id not in runs:
            self._take(RunEnded(shown.run_id, "cancelled", void=True))

    def _show(self, trace: str, shown: _Shown) -> None:
        try:
            found = run_so_far(self._spool.spans(trace))
        except (InvalidInput, ValueError, TypeError, RecursionError):
            return  # it is said once the trace is complete
        if found is None:
            return
        run = replace(found.run, status="open", answer=None, ended_ns=0)
        if not found.asked:
            run = replace(run, question="")
        if run.id != shown.run_id:
            if shown.run_id:
                self._take(RunEnded(shown.run_id, "cancelled", void=True))
            shown.run_id, shown.steps = run.id, set()
        new = [step for step in run.steps if step.id not in shown.steps]
        shown.steps.update(step.id for step in new)
        if new:
            self._take(RunStarted(replace(run, steps=[])))
        for step in new:
            self._take(StepEnded(step, run.id))
