"""Scores open runs as their steps end, with what is known so far; the scores are stored as provisional.

Live scoring is never due: no caller waits for it. A run that ends before its turn, or about which no engine answers, is
scored at its end only. It uses the worker's slots that no ended run needs, at most half of all.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Set
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from ragguard.records import Failure, Run
from ragguard.runtime.faults import NOTICES
from ragguard.scorers.pipeline import engine_answered, evaluate
from ragguard.scorers.scorer import Live
from ragguard.service.run_scoring import ScoringTools, is_chosen

Work: TypeAlias = Callable[[], Awaitable[bool]]
"""Scores or delivers one run; returns False where no engine answered."""
STEP_WAITS = 0.2
"""The seconds that a step which has ended waits for others that are parallel, so that one wave asks about all."""


class LiveScoring:
    """Scores open runs: first what asks about the last step alone, then what looks at all steps so far."""

    def __init__(self, tools: ScoringTools) -> None:
        self._tools, self._most = tools, max(1, tools.settings.concurrency // 2)
        self._waiting: dict[str, float] = {}
        """The open runs of which a step has ended since they were last scored, each with the time from which it may be
        scored, on the monotonic clock. The writer adds to it; whoever iterates over it takes a copy."""
        self._running: set[str] = set()

    def note(self, changed: Set[str]) -> None:
        """Notes the ids of open runs whose steps ended or changed; from any thread."""
        if not self._tools.pipeline.get().remembers:
            NOTICES.warn(
                "live scoring without a cache",
                "steps are scored only at the end of a run, because the engine has no cache and would get the same "
                "questions at each step: use an engine of `ragguard.connect`, or one with the layer Cache, or set "
                "when='run'",
            )
            return
        now = time.monotonic()
        for run_id in changed:
            if is_chosen(run_id, self._tools.settings.score_rate):
                self._waiting.setdefault(run_id, now + STEP_WAITS)

    def take(self, slots: int) -> list[Work]:
        """Returns work on open runs for at most so many slots, those that wait longest first."""
        free = max(0, min(slots, self._most - len(self._running)))
        now = time.monotonic()
        due = [run_id for run_id, at in self._ready() if at <= now][:free]
        for run_id in due:
            del self._waiting[run_id]
        self._running.update(due)
        return [partial(self._score, run_id) for run_id in due]

    def next_in(self) -> float | None:
        """Returns the seconds until there is work; None where there is none, or no slot for it."""
        if len(self._running) >= self._most:
            return None
        due = [at for _, at in self._ready()]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _ready(self) -> list[tuple[str, float]]:
        """Returns the runs that wait and are not being scored."""
        return [(run_id, at) for run_id, at in list(self._waiting.items()) if run_id not in self._running]

    async def _score(self, run_id: str) -> bool:
        """Scores an open run as it stands; returns False where no engine answered.

        The run may end meanwhile, and its final scoring may run at the same time: equal questions are asked once, and
        the provisional results then only add their cost.
        """
        try:
            self._waiting.pop(run_id, None)  # whatever has ended until now is in the store
            run = await self._tools.store.run(run_id)
            return run is None or run.status != "open" or await self._attempt(run)
        finally:
            self._running.discard(run_id)

    async def _attempt(self, run: Run) -> bool:
        tools, pipeline = self._tools, self._tools.pipeline.get()
        references, _ = await tools.references_of(run)  # failures of finding them are the run's end's
        if references:
            run = replace(run, references=references)
        failures: list[Failure] = []
        # Without a known question of the run, only scorers about the steps' queries can be asked.
        kinds: tuple[Live, ...] = ("at once", "so far") if run.question.strip() else ("at once",)
        for kind in kinds:
            # Scorers about a step that has ended meanwhile come before those about all steps.
            if not pipeline.live_scorers(kind) or run.id in self._waiting:
                continue
            scored = await evaluate(run, pipeline.results_so_far(run, kind))
            failures += tools.redactor.failures(scored.failures)
            new = await tools.store.store_provisional(run.id, scored.scores, failures, references)
            if new and tools.delivery:
                await tools.delivery.start(replace(scored, scores=new, failures=[]))
            if new is None or not engine_answered(scored):  # the run has ended, or the engine is away
                return new is None
        return True
