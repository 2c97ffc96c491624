"""Scores one run, and returns errors as failures, those of its capture too. Needs no store and no service."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Sequence

from ragguard.errors import RagguardError
from ragguard.records import (
    CUT_PASSAGES,
    GRADE_ERROR,
    K_ERROR,
    SPLIT_ERROR,
    Failure,
    Result,
    Run,
    Score,
    ScoredRun,
)
from ragguard.runtime.faults import describe
from ragguard.scorers.score_writer import failure_of
from ragguard.text.secret_filter import logger

_log = logger("ragguard")


async def evaluate(run: Run, asking: Awaitable[Sequence[Result]]) -> ScoredRun:
    """Returns a run with its scores and failures as a pipeline answers them. A fault of an engine or a scorer becomes a
    failure. Never raises.

    Args:
        run: The run.
        asking: What a pipeline gives of it: `pipeline.results(run)`, or `results_so_far` of an open run.
    """
    started = time.time_ns()
    try:
        results = await asking
    except Exception as error:  # noqa: BLE001 - a fault of a scorer is a record as well
        if not isinstance(error, RagguardError):
            _log.error("scoring run %s failed: %s", run.id, describe(error), exc_info=error)
        results = [failure_of("scorers", run, error)]
    scores = [result for result in results if isinstance(result, Score)]
    return ScoredRun(
        run,
        [score for score in scores if math.isfinite(score.value)],
        [result for result in results if isinstance(result, Failure)]
        + [_not_finite(run, score) for score in scores if not math.isfinite(score.value)],
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


def capture_failures(run: Run) -> list[Failure]:
    """Returns a failure for each step whose K cannot be right, so that no score which needs K is given, for each
    passage whose grade is none, for each step whose splitter failed, so that scores are about its whole text, and for
    each step that gave more passages than are captured."""
    found = [(step, "InvalidInput", step.metadata[K_ERROR]) for step in run.steps if K_ERROR in step.metadata]
    found += [
        (step, "InvalidInput", passage.metadata[GRADE_ERROR])
        for step in run.steps
        for passage in step.candidates or step.passages
        if GRADE_ERROR in passage.metadata
    ]
    found += [
        (
            step,
            "SplitterFailed",
            f"what {step.tool or 'the tool'!r} returned could not be taken apart and is judged as one passage: "
            f"{step.metadata[SPLIT_ERROR]}",
        )
        for step in run.steps
        if SPLIT_ERROR in step.metadata
    ]
    found += [
        (
            step,
            "CapExceeded",
            f"only {passages[-1].metadata[CUT_PASSAGES]} are captured, and no number counts the others; record fewer",
        )
        for step in run.steps
        for passages in [step.candidates or step.passages]
        if passages and CUT_PASSAGES in passages[-1].metadata
    ]
    return [
        Failure("capture", error, message, run_id=run.id, step_id=step.id) for step, error, message in found
    ]
