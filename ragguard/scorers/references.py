"""References: the answers to a run's question that are known to be right, from a table or from a user's function."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ragguard.errors import InvalidInput
from ragguard.records import Failure, Run
from ragguard.runtime.arguments import references_of
from ragguard.runtime.faults import describe, result_or_error

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

    def given_to(self, run: Run) -> Run:
        """Returns a run with the answers under its id, which has to be the same to the letter, or else to its question,
        as its references, unless it brings its own."""
        found = self._exact.get(run.id) or self(run.question)
        return run if run.references or not found else replace(run, references=[*found])


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


def spelled(question: object) -> str:
    """Returns the form of a question by which it is found: in lower case, with single spaces."""
    if not isinstance(question, str):
        raise InvalidInput("references", question, "a question that is a text, for each key")
    return " ".join(question.split()).casefold()
