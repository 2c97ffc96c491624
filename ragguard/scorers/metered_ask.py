"""Counts what the questions of a scorer cost, so that every token that was asked is in the usage of a score.

A score carries the cost of what it is made from. What was asked and made no score, such as answers whose comparison
failed, is added to the last score of the scorer, or to that of another where it gave none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ragguard.errors import RagguardError
from ragguard.records import Result, Score, Usage
from ragguard.scorers.probes.question import Ask

_ROUNDING_SECONDS = 1e-6
"""Differences in seconds below this are rounding errors of adding up shares."""


class MeteredAsk:
    """The `ask` of one scorer, which adds up the usage of its answers."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.usage = Usage()

    async def __call__(self, questions: Sequence[Any]) -> list[Any]:
        """Returns the answers to the questions."""
        answers: list[Any] = await self._ask(questions)
        for answer in answers:
            if not isinstance(answer, RagguardError):
                self.usage += answer.usage
        return answers


def unattributed(usage: Usage, results: Sequence[Result]) -> Usage:
    """Returns the part of a usage that is in no score of the results."""
    attributed = sum((result.usage for result in results if isinstance(result, Score)), Usage())
    seconds = usage.seconds - attributed.seconds
    return Usage(
        max(0, usage.requests - attributed.requests),
        max(0, usage.prompts - attributed.prompts),
        max(0, usage.prompt_tokens - attributed.prompt_tokens),
        max(0, usage.output_tokens - attributed.output_tokens),
        seconds=seconds if seconds > _ROUNDING_SECONDS else 0.0,
        cached=max(0, usage.cached - attributed.cached),
    )


def with_usage(results: Sequence[Result], usage: Usage) -> list[Result] | None:
    """Returns results with a usage added to their last score; None where they have no score."""
    for index in range(len(results) - 1, -1, -1):
        score = results[index]
        if isinstance(score, Score):
            paid = replace(score, usage=score.usage + usage)
            return [*results[:index], paid, *results[index + 1 :]]
    return None
