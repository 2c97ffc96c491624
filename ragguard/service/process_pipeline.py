"""The scoring pipeline of a service, built on the first use."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ragguard.engines.layers.retry import failure_since
from ragguard.errors import EngineError
from ragguard.records import Result, Run
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.scorer import Live, Scorer
from ragguard.service.settings import Settings


class ProcessPipeline:
    """Builds the pipeline once, whichever thread asks first; scores runs as a `ScoringPipeline` does."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self.built: ScoringPipeline | None = None
        """The pipeline; None where nothing has asked for it yet."""

    def get(self) -> ScoringPipeline:
        """Returns the pipeline; raises an error where the settings of its models are wrong."""
        with self._lock:
            if self.built is None:
                self.built = self._settings.scoring.build()
            return self.built

    async def results(self, run: Run, *, priority: int = 10) -> Sequence[Result]:
        return await self.get().results(run, priority=priority)

    async def results_so_far(
        self, run: Run, scorers: Sequence[Scorer], *, priority: int = 10
    ) -> Sequence[Result]:
        return await self.get().results_so_far(run, scorers, priority=priority)

    def live_scorers(self, kind: Live) -> Sequence[Scorer]:
        return self.get().live_scorers(kind)

    def failure_since(self, since: float) -> EngineError | None:
        """Returns the error of the latest attempt since then (on the monotonic clock) that is being repeated, of a call
        to any of the models; None where there is none."""
        failed = [failure_since(engine, since) for engine in (self.built.engines if self.built else ())]
        return next((error for error in failed if error is not None), None)

    async def aclose(self) -> None:
        """Closes the models that were made for the pipeline."""
        if self.built is not None:
            await self.built.aclose()
