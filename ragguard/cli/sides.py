"""Compares two retrievers on the same questions in `ragguard try`: loads the second one, and measures both."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from inspect import isawaitable
from statistics import fmean

from ragguard.errors import InvalidInput
from ragguard.records import Passage, Score
from ragguard.storage.sqlite.score_rows import RunMeans, Series

FIT = Series("query_gain", "passage", False, "passages")
"""The fit of passages to the whole question, although a search may have asked for a part of it only."""


def load_retriever(name: str) -> Callable[[str], object]:
    """Returns the function of `module:function`, the module looked for in the current folder, too."""
    module, colon, function = name.partition(":")
    allowed = "module:function, a function that takes a question and returns passages"
    if not (module and colon and function):
        raise InvalidInput("--retriever", name, allowed)
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(import_module(module), function)
    except Exception as error:
        raise InvalidInput("--retriever", name, f"{allowed} ({type(error).__name__}: {error})") from error
    if not callable(found):
        raise InvalidInput("--retriever", name, f"{allowed} ({function} cannot be called)")
    return found  # type: ignore[no-any-return]  # what a user's module holds


def retrieve(
    retriever: Callable[[str], object], query: str, most: int, without: Sequence[Passage]
) -> list[Passage]:
    """Returns the first passages of a retriever of the user's, asynchronous or not, that were not found before."""
    from ragguard.capture.snapshot import passages_of

    try:
        given = retriever(query)
        found = passages_of(asyncio.run(_awaited(given)) if isawaitable(given) else given)
    except Exception as error:
        allowed = f"a function that answers a question ({type(error).__name__}: {error})"
        raise InvalidInput("--retriever", getattr(retriever, "__name__", "?"), allowed) from error
    known = {one.text for one in without}
    return [one for one in found if one.text not in known][:most]


async def _awaited(given: Awaitable[object]) -> object:
    return await given


def means_of(question: str, scores: Sequence[Score], fits: Sequence[float]) -> RunMeans:
    """Returns what can be compared of a run: scores of the question, none of the run's own answer or of its queries.

    `fits` are the passages' fits to the whole question, where these were measured.
    """
    values: dict[Series, list[float]] = defaultdict(list)
    origins: dict[Series, str] = {}
    for score in scores:
        if score.provisional or score.reference_source == "answer" or score.name == FIT.name:
            continue
        series = Series(score.name, score.level, False, score.stage)
        values[series].append(score.value)
        origins[series] = f"{score.engine} {score.prompts}"
    if fits:
        values[FIT], origins[FIT] = list(fits), ""
    found = RunMeans(question)
    for series, numbers in values.items():
        found.add(series, origins[series], fmean(numbers))
    return found
