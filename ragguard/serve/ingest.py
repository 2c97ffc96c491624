"""Takes spans durably, and makes runs of the traces that are complete.

ingest = Ingest(rg, Spool("ragguard.db-spans"), settle=5, quiet=60)
refused = await ingest.take(spans)     # on the disk once it returns
await ingest.run()                     # makes runs, for ever

Before it is complete, a trace is shown as an open run, whose steps are scored as they end. An exporter sends a span
when it has ended, a trace's root last. Until then a run is known by the root that is missing, once all spans that came
hang on that one; its question, by what a model or an agent inside it was asked.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ragguard.capture.events import RunEnded, RunStarted, StepEnded
from ragguard.capture.open_runs import EventIntake
from ragguard.client import RagGuard
from ragguard.errors import StoreError
from ragguard.records import Run
from ragguard.runtime.deadline import now_ns
from ragguard.runtime.faults import NOTICES, describe
from ragguard.text.secret_filter import logger
from ragguard.traces.runs import run_so_far, runs_of_trace
from ragguard.traces.spool import Spool
from ragguard.traces.trace_spans import PackedSpan

MOST_PENDING = 10_000
"""The most runs that wait to be scored; beyond it traces wait in the spool, which refuses spans where it is full."""
_EVERY = 0.5
"""Seconds between two looks for complete traces."""
_LATE_SECONDS, _KNOWN_SECONDS = 600.0, 86_400.0
"""Seconds for which the spans of a trace are kept after it was complete, and for which its id is known."""
_AT_ONCE, _CLEANED = 64, 2.0
"""How many traces become runs in one transaction, and the seconds between two clean-ups of the spool."""
_log = logger("ragguard.serve")
MOST_SHOWN = 16
"""The most traces that are shown at once, the latest ones; of the others the end alone is scored."""
_GROWTH = 1.1
"""The growth of a trace after which it is read again, so that the readings of a large one do not cost too much."""
_PATIENCE = 5.0
"""Seconds after which one is read again that has grown by less."""


class Ingest:
    """The way of spans to runs in a store."""

    def __init__(
        self,
        rg: RagGuard,
        spool: Spool,
        *,
        settle: float,
        quiet: float,
        live: bool = True,
        tools: Collection[str] = (),
        clock: Callable[[], float] = lambda: now_ns() / 1e9,
    ) -> None:
        """Takes `live`, with which steps are scored as they end, and the `tools` whose results are passages whatever
        their form."""
        self.spool, self.remarks = spool, Counter[str]()
        self.counts = Counter(
            {"traces": 0, "runs": 0, "runs refused": 0, "traces not understood": 0, "errors": 0}
        )
        """`counts`: how many traces and runs there were, and runs that the store refused. `remarks`: what was not
        understood, and how often."""
        self._rg, self._settle, self._quiet, self._clock = rg, settle, quiet, clock
        self._taking, self._cleaned = 0, 0.0
        """How many requests are being taken, and when the spool was cleaned up last."""
        self._tools = tools
        self._live = LiveTraces(rg.recorder.intake, spool, tools) if live else None
        spool.limit_times(self._clock())

    async def take(self, spans: Callable[[], Iterable[PackedSpan]]) -> Counter[str]:
        """Reads and keeps spans, on a thread; returns how many were refused, by the reason."""
        self._taking += 1
        try:
            return await asyncio.to_thread(lambda: self.spool.add(spans(), self._clock()))
        finally:
            self._taking -= 1

    async def run(self) -> None:
        """Hands over complete traces until it is cancelled. An error is logged, and the traces are tried again.

        While spans are being taken, this goes before making and scoring runs: a small batch of runs is made once those
        before it are scored, with a pause behind each.
        """
        while True:
            more = False
            try:
                if not (self._taking and await self.pending()):
                    more = await self.hand_over()
                await self.show_open()
            except Exception as error:  # noqa: BLE001 - the service goes on whatever happens
                self.counts["errors"] += 1
                why = f"traces could not be handed over, and are tried again: {describe(error)}"
                NOTICES.warn("traces are not handed over", why)
            await asyncio.sleep(0.0 if more and not self._taking else _EVERY)

    async def hand_over(self) -> bool:
        """Makes runs of some traces that are complete, and stores them; they are scored in the background. Returns True
        where more may be complete."""
        now, traces = self._clock(), list[str]()
        if await self.pending() < MOST_PENDING:
            traces = self.spool.complete(now - self._settle, now - self._quiet, _AT_ONCE)
        if traces:
            runs = await asyncio.to_thread(self._runs_in, traces)
            refused = await self._rg.add_runs(
                runs, amend=True
            )  # a root that came late may bring the question
            await asyncio.to_thread(self._delete_outdated, traces, {run.id for run in runs})
            self.counts.update(
                {"traces": len(traces), "runs": len(runs) - len(refused), "runs refused": len(refused)}
            )
            for error in refused.values():
                _log.warning("a run of a trace is not stored: %s", error)
            await asyncio.to_thread(self.spool.handed, traces, now)
        if now >= self._cleaned + _CLEANED:
            self._cleaned = now
            await asyncio.to_thread(self.spool.forget, now - _LATE_SECONDS, now - _KNOWN_SECONDS)
        return len(traces) == _AT_ONCE

    async def show_open(self) -> None:
        """Shows the traces that are not complete as open runs, where steps are scored as they end and no complete run
        waits."""
        if self._live is not None and not await self.pending():
            await asyncio.to_thread(self._live.look, self._clock())

    async def pending(self) -> int:
        """Returns how many runs wait to be scored or delivered; read on a thread, since a store may be locked."""
        return (await asyncio.to_thread(self._rg.store.left)).pending

    def _delete_outdated(self, traces: Sequence[str], ids: Collection[str]) -> None:
        """Deletes the runs that a trace was before more of its spans came, under other roots."""
        for trace in traces:
            for run_id in self._rg.store.run_ids(f"{trace}-"):
                if run_id not in ids:
                    with suppress(StoreError):  # it is open, and ends by itself
                        self._rg.store.delete(run_id)

    def _runs_in(self, traces: Sequence[str]) -> list[Run]:
        found: list[Run] = []
        for trace in traces:
            began = len(found)
            try:
                for one in runs_of_trace(self.spool.spans(trace), self._tools):
                    self.remarks.update(one.remarks if len(self.remarks) < 1000 else ())
                    found += [one.run] if one.run.steps else []
            except Exception as error:  # noqa: BLE001 - one trace must not hold up the others
                self.counts["traces not understood"] += 1
                _log.warning("the trace %s is not understood: %s", trace, describe(error))
            if self._live is not None:
                self._live.ended(trace, [run.id for run in found[began:]])
        return found


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

    def __init__(self, take: EventIntake, spool: Spool, tools: Collection[str] = ()) -> None:
        self._take, self._spool, self._tools = take, spool, tools
        self._shown: dict[str, _Shown] = {}

    def look(self, now: float) -> None:
        """Shows what is new in the traces whose roots have not ended."""
        for trace, spans in self._spool.growing(now - 2 * _PATIENCE, MOST_SHOWN):
            shown = self._shown.setdefault(trace, _Shown())
            due = spans >= shown.spans * _GROWTH or now >= shown.read_at + _PATIENCE
            if spans > shown.spans and due:
                shown.spans, shown.read_at = spans, now
                try:
                    self._show(trace, shown)
                except Exception as error:  # noqa: BLE001 - one trace must not hold up the others
                    _log.warning("the trace %s is not understood so far: %s", trace, describe(error))

    def ended(self, trace: str, runs: Collection[str]) -> None:
        """Takes back what is shown of a trace under another id than those of the runs that it has become."""
        shown = self._shown.pop(trace, None)
        if shown is not None and shown.run_id and shown.run_id not in runs:
            self._take(RunEnded(shown.run_id, "cancelled", void=True))

    def _show(self, trace: str, shown: _Shown) -> None:
        found = run_so_far(self._spool.spans(trace), self._tools)
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
