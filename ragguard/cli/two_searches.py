"""Compares two ways to search, for `ragguard try`: loads a user's retriever, and shows the means of both ways."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import iscoroutine
from statistics import fmean
from typing import NamedTuple, TypeAlias

from ragguard.analysis.pairs import compare, questions_of
from ragguard.capture.snapshot import passages_of
from ragguard.cli.terminal import say
from ragguard.engines.base import Engine
from ragguard.engines.engine import Verbs
from ragguard.engines.prompts import load_prompts
from ragguard.errors import InvalidInput
from ragguard.metrics.answers import query_gain
from ragguard.records import Passage, Score
from ragguard.scorers.probes import query_likelihood
from ragguard.storage.sqlite.score_rows import RunMeans, Series

Finder: TypeAlias = Callable[[str, int, Sequence[Passage]], list[Passage]]
"""Returns the most passages for a query that are wanted, without those that are known; as `Search` does."""


class SearchWay(NamedTuple):
    """A way to search: what is asked for each question, and what finds passages: the texts, or a retriever of the
    user's."""

    name: str
    wordings: Sequence[str]
    find: Finder


def load_retriever(name: str) -> Finder:
    """Returns the function of `module:function` as a way to search, asynchronous or not; the module is looked for in
    the current folder, too."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        module, function = name.split(":")
        retriever = getattr(import_module(module), function)
        if not callable(retriever):
            raise TypeError(f"{function} is not callable")
    except Exception as error:
        allowed = "module:function, a function that takes a question and returns passages"
        raise InvalidInput("--retriever", name, f"{allowed} ({type(error).__name__}: {error})") from error

    def find(query: str, most: int, known: Sequence[Passage]) -> list[Passage]:
        try:
            results = retriever(query)
            passages = passages_of(asyncio.run(results) if iscoroutine(results) else results)
        except Exception as error:
            allowed = f"a function that answers a question ({type(error).__name__}: {error})"
            raise InvalidInput("--retriever", getattr(retriever, "__name__", "?"), allowed) from error
        texts = {passage.text for passage in known}
        return [passage for passage in passages if passage.text not in texts][:most]

    return find


FIT = Series("query_gain", "passage", False, "passages")
"""The fit of passages to the whole question, although a search may have asked for a part of it only."""


async def fits_of(engine: Engine, question: str, passages: Sequence[Passage]) -> list[float]:
    """Returns by how much each passage raises the mean log-probability of the question's tokens: `query_gain`."""
    if not isinstance(engine, Verbs) or not passages:
        return []
    prompts = load_prompts("default")
    asked = [query_likelihood(prompts, question)]
    asked += [query_likelihood(prompts, question, passage.text) for passage in passages]
    rows = await engine.continuations([probe.prompt for probe in asked], [[question]] * len(asked))
    alone, *after = (row[0].logprobs for row in rows)
    return [query_gain(logprobs, alone) for logprobs in after]


def means_of(question: str, scores: Sequence[Score], fits: Sequence[float]) -> RunMeans:
    """Returns what can be compared of a run: scores of the question, none of the run's own answer or of its queries.

    `fits` are the passages' fits to the whole question, where these were measured.
    """
    values: dict[tuple[Series, str], list[float]] = defaultdict(list)
    for score in scores:
        if not score.provisional and score.reference_source != "answer" and score.name != FIT.name:
            series = Series(score.name, score.level, False, score.stage)
            values[series, f"{score.engine} {score.prompts}"].append(score.value)
    if fits:
        values[FIT, ""] = list(fits)
    means = RunMeans(question)
    for (series, origin), numbers in values.items():
        means.add(series, origin, fmean(numbers))
    return means


def say_better(before: Sequence[RunMeans], after: Sequence[RunMeans]) -> None:
    """Prints which of two ways to search was better; the second one is "after"."""
    for way, runs in (("first", before), ("second", after)):
        if not any(run.means for run in runs):
            say(f"\nnot compared: nothing that the {way} search found could be scored")
            return
    compared = compare(questions_of(before), questions_of(after))
    say(f"\nsecond search against the first: {compared.verdict.sentence}")
    for change in compared.decisive:
        say(f"  {change.metric}: {change.before:z.3f} before, {change.after:z.3f} after")
