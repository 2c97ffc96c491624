"""A pipeline without scorers: gives one score a step and one a run, and waits or fails on demand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from support.runs import scores_of

from ragguard.records import PROVISIONAL, Failure, Run, Score
from ragguard.scorers.pipeline import Identity, ScorerIdentity
from ragguard.scorers.plan import Plan


@dataclass
class ScriptedPipeline:
    fault: Callable[[Run], Exception | None] = lambda run: None
    """The fault of the engine for a run; a retryable one makes a failure that is tried again."""
    value: float = 0.5
    seen: list[Run] = field(default_factory=list)
    gate: threading.Event | None = None
    """Scoring waits here until it is set."""
    running: int = 0
    most_running: int = 0
    entered: threading.Event = field(default_factory=threading.Event)
    threads: set[str] = field(default_factory=set)
    remembers: bool = True
    live: tuple[str, ...] = ()
    """The kinds of scorers that look at open runs."""
    seen_open: list[tuple[Run, str]] = field(default_factory=list)
    """The open runs that were looked at, each with the kind of scorer."""

    async def results(self, run: Run, *, priority: int = 10) -> list[Score | Failure]:
        self.seen.append(run)
        return await self._asked(run)

    def live_scorers(self, kind: str) -> tuple[str, ...]:
        return (kind,) if kind in self.live else ()

    async def results_so_far(self, run: Run, kind: str) -> list[Score | Failure]:
        self.seen_open.append((run, kind))
        return [
            replace(one, metadata={PROVISIONAL: True}) if isinstance(one, Score) else one
            for one in await self._asked(run)
        ]

    async def _asked(self, run: Run) -> list[Score | Failure]:
        self.threads.add(threading.current_thread().name)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.entered.set()
        try:
            while self.gate is not None and not self.gate.is_set():
                await asyncio.sleep(0.001)
            await asyncio.sleep(0)
            if (error := self.fault(run)) is not None:
                if not hasattr(error, "retryable"):
                    raise error
                return [Failure("utility", type(error).__name__, str(error), error.retryable, run.id)]
            return list(scores_of(run, self.value))
        finally:
            self.running -= 1

    async def plan(self, run: Run) -> Plan:
        return Plan(runs=1)

    async def identity(self) -> Identity:
        return Identity("m/first", "m/first", "default/1", (ScorerIdentity("utility", "1"),))

    @property
    def engines(self) -> tuple[()]:
        return ()

    async def aclose(self) -> None:
        pass


@dataclass(frozen=True)
class ScriptedSettings:
    """Settings that build one pipeline, always the same."""

    pipeline: object = field(default_factory=ScriptedPipeline)
    scorers: tuple[str, ...] = ("scripted",)
    engine: object = None
    """No address, so that nothing is examined."""

    def build(self) -> object:
        return self.pipeline


@dataclass
class ListSink:
    """Keeps what it is given; fails or hangs on demand."""

    error: Exception | None = None
    got: list = field(default_factory=list)
    closed: int = 0

    async def submit(self, scored) -> None:
        if self.error is not None:
            raise self.error
        self.got.append(scored)

    async def aclose(self) -> None:
        self.closed += 1
