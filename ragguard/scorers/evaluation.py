"""Scores one run: finds its references, and returns errors as failures, those of its capture too. Needs no store and no
service."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ragguard.errors import InvalidInput, RagguardError
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
from ragguard.runtime.arguments import references_of
from ragguard.runtime.faults import describe, result_or_error
from ragguard.scorers.scorer import failure_of
from ragguard.text.secret_filter import logger

KnownAnswers: TypeAlias = str | Sequence[str] | None
References: TypeAlias = Callable[[str], KnownAnswers | Awaitable[KnownAnswers]]
"""Returns the answers to a question that are known to be right."""


class ReferenceTable:
    """The right answers to questions; a question is found whatever its spaces and capitals."""

    def __init__(self, table: Mapping[str, str | Sequence[str]]) -> None:
        self._exact = {name: references_of(answers) for name, answers in table.items()}
        self._known = {spelled(question): answers for question, answers in self._exact.items()}

    def __call__(self, question: str) -> list[str] | None:
        """Returns the answers to a question; None where it is not in the table."""
        return self._known.get(spelled(question))

    def of(self, run: Run) -> list[str] | None:
        """Returns the answers under a run's id, which has to be the same to the letter, or else to its question."""
        return self._exact.get(run.id) or self(run.question)


async def find_references(references: References, run: Run) -> tuple[list[str] | None, list[Failure]]:
    """Returns the references of a run that has none of its own, and a failure where the user's function raised."""
    if run.references or not run.question:
        return None, []

    async def found_by_user() -> list[str] | None:
        # A synchronous function may block, so that a thread calls it; it may return an awaitable all the same.
        blocks = not inspect.iscoroutinefunction(references)
        known = await asyncio.to_thread(references, run.question) if blocks else references(run.question)
        return references_of(await known if inspect.isawaitable(known) else known)

    found = await result_or_error(found_by_user)
    if isinstance(found, BaseException):
        message = f"references= failed for this question: {describe(found)}"
        return None, [Failure("references", type(found).__name__, message, run_id=run.id)]
    return found, []


def with_references(run: Run, table: ReferenceTable) -> Run:
    """Returns a run with the references that a table has under its id or its question, unless it brings its own."""
    found = table.of(run)
    return run if run.references or not found else replace(run, references=[*found])


def spelled(question: object) -> str:
    """Returns the form of a question by which it is found: in lower case, with single spaces."""
    if not isinstance(question, str):
        raise InvalidInput("references", question, "a question that is a text, for each key")
    return " ".join(question.split()).casefold()


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
    scores: list[Score] = []
    failures: list[Failure] = []
    for one in results:
        if isinstance(one, Failure):
            failures.append(one)
        elif math.isfinite(one.value):
            scores.append(one)
        else:
            wrong = f"{one.name} came out as {one.value}"
            failures.append(Failure(one.scorer, "NotFinite", wrong, run_id=run.id, step_id=one.step_id))
    return ScoredRun(run, scores, failures, started_ns=started, ended_ns=time.time_ns())


def capture_failures(run: Run) -> list[Failure]:
    """Returns a failure for each step whose K cannot be right, so that no score which needs K is given, for each
    passage whose grade is none, for each step whose splitter failed, so that scores are about its whole text, and for
    each step that gave more passages than are captured."""
    found: list[Failure] = []
    for step in run.steps:
        facts, passages = step.metadata, step.candidates or step.passages
        wrong = [facts[K_ERROR]] if K_ERROR in facts else []
        wrong += [passage.metadata[GRADE_ERROR] for passage in passages if GRADE_ERROR in passage.metadata]
        errors = [("InvalidInput", message) for message in wrong]
        if SPLIT_ERROR in facts:
            what = f"what {step.tool or 'the tool'!r} returned could not be taken apart and is judged as one passage"
            errors.append(("SplitterFailed", f"{what}: {facts[SPLIT_ERROR]}"))
        if passages and (kept := passages[-1].metadata.get(CUT_PASSAGES)):
            errors.append(
                ("CapExceeded", f"only {kept} are captured, and no number counts the others; record fewer")
            )
        found += [Failure("capture", name, text, run_id=run.id, step_id=step.id) for name, text in errors]
    return found
