"""Scores one run, and returns errors as failures. Needs only a pipeline, and no store and no service."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Sequence
from typing import Protocol

from ragguard.errors import RagguardError
from ragguard.records import Failure, Result, Run, Score, ScoredRun
from ragguard.runtime.faults import describe
from ragguard.scorers.models import SCORING
from ragguard.scorers.score_writer import failure_of
from ragguard.scorers.scorer import Scorer
from ragguard.text.secret_filter import logger

_log = logger("ragguard")


class ResultSource(Protocol):
    """A source of a run's results, as `scorers.pipeline.ScoringPipeline` does."""

    async def results(self, run: Run, *, priority: int = SCORING) -> Sequence[Result]:
        """Returns all scores of a run, and a failure for each that could not be computed."""
        ...

    async def results_so_far(
        self, run: Run, scorers: Sequence[Scorer], *, priority: int = SCORING
    ) -> Sequence[Result]:
        """Returns the scores and failures that these scorers can give for a run that has not ended."""
        ...


async def evaluate(pipeline: ResultSource, run: Run, *, priority: int = SCORING) -> ScoredRun:
    """Returns a run with its scores and failures. A fault of an engine or a scorer becomes a failure. Never raises."""
    return await _evaluated(run, pipeline.results(run, priority=priority))


async def evaluate_so_far(
    pipeline: ResultSource, run: Run, scorers: Sequence[Scorer], *, priority: int = SCORING
) -> ScoredRun:
    """Returns a run that has not ended with the scores and failures that these scorers can give. Never raises."""
    return await _evaluated(run, pipeline.results_so_far(run, scorers, priority=priority))


async def _evaluated(run: Run, asking: Awaitable[Sequence[Result]]) -> ScoredRun:
    started = time.time_ns()
    try:
        results = await asking
    except Exception as error:  # noqa: BLE001 - a fault of a scorer is a record as well
        if not isinstance(error, RagguardError):
            _log.error("scoring run %s failed: %s", run.id, describe(error), exc_info=error)
        results = [failure_of("scorers", run, error)]
    scores = [one for one in results if isinstance(one, Score)]
    return ScoredRun(
        run,
        [one for one in scores if math.isfinite(one.value)],
        [one for one in results if isinstance(one, Failure)]
        + [_not_finite(run, one) for one in scores if not math.isfinite(one.value)],
        started_ns=started,
        ended_ns=time.time_ns(),
    )


def _not_finite(run: Run, score: Score) -> Failure:
    return Failure(
        score.scorer,
        "NotFinite",
        f"{score.name} came out as {score.value}",
        run_id=run.id,
        step_id=score.step_id,
    )
