"""Shows traces that are not complete as open runs, whose steps are scored as they end.

An exporter sends a span when it has ended, a trace's root last. Until then a run is known by the root that is missing,
once all spans that came hang on that one; its question, by what a model or an agent inside it was asked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from ragguard.capture.events import RunEnded, RunStarted, StepEnded
from ragguard.capture.interfaces import EventIntake
from ragguard.errors import InvalidInput
from ragguard.traces.runs import runs_of_trace
from ragguard.traces.spool import Spool

MOST_AT_ONCE = 16
"""The most traces that are looked at in one go, the latest first; of the others the end alone is scored."""
_KEPT = 4096
"""The most traces of which it is kept what is shown of them."""
_GROWTH = 1.1
"""The growth of a trace after which it is read again, so that all its readings together cost little more than one."""


@dataclass(slots=True)
class _Shown:
    """The part of a trace that is shown."""

    spans: int = 0
    """The number of its spans when it was read last."""
    run_id: str = ""
    steps: set[str] = field(default_factory=set)


class LiveTraces:
    """The traces of a spool that are shown as open runs. Not for several threads at once."""

    def __init__(self, take: EventIntake, spool: Spool) -> None:
        self._take, self._spool = take, spool
        self._shown: OrderedDict[str, _Shown] = OrderedDict()

    def look(self, since: float) -> None:
        """Shows what is new in the traces of which spans came since that time and whose roots have not ended."""
        for trace, spans in self._spool.growing(since, MOST_AT_ONCE):
            shown = self._shown.setdefault(trace, _Shown())
            if spans >= shown.spans * _GROWTH:
                shown.spans = spans
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
            found = runs_of_trace(self._spool.spans(trace))
        except (InvalidInput, ValueError, TypeError, RecursionError):
            return  # it is said once the trace is complete
        if len(found) != 1 or not found[0].run.steps:
            return
        run = replace(found[0].run, status="open", answer=None, ended_ns=0)
        if not found[0].asked:
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
