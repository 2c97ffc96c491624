"""Asks a model about passages by its own labels and by the likelihood of a query, whatever it failed in at its
examination: the study shows what such numbers are worth."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from ragguard.engines.base import Engine
from ragguard.engines.prompts import load_prompts
from ragguard.metrics.answers import query_gain
from ragguard.scorers.asker import Asker, Models
from ragguard.scorers.probes import abstention, query_likelihood, relevance
from ragguard.scorers.question import answered
from ragguard.text.search import Index, content_words


class Judged(NamedTuple):
    """A model's numbers about the passages of a query, without references."""

    relevant: float
    abstains: float
    gain: float
    """How much likelier they make the query, in nats a token; nan if the prompts have no query to be likely."""


async def judged(engine: Engine, asked: Sequence[tuple[str, Sequence[str]]]) -> list[Judged]:
    """Returns what a model says of each query with its passages, read together."""
    prompts = load_prompts((await engine.info()).prompts)
    labels = [probe(prompts, query, *texts) for query, texts in asked for probe in (relevance, abstention)]
    gains = await query_gains(engine, asked)
    answers = await _answers(engine, labels)
    found = []
    for at, gain in enumerate(gains):
        yes, no = answers[2 * at].p
        found.append(Judged(yes / max(yes + no, 1e-12), min(1.0, answers[2 * at + 1].p[0]), gain))
    return found


async def query_gains(engine: Engine, asked: Sequence[tuple[str, Sequence[str]]]) -> list[float]:
    """Returns how much likelier its passages make each query; nan if the prompts have no query to be likely."""
    prompts = load_prompts((await engine.info()).prompts)
    if not {"query", "query_closed"} <= prompts.templates.keys():
        return [float("nan")] * len(asked)
    given = [query_likelihood(prompts, query, *texts) for query, texts in asked]
    alone = [query_likelihood(prompts, query) for query, _ in asked]
    answers = await _answers(engine, [*given, *alone])
    pairs = zip(answers[: len(asked)], answers[len(asked) :], strict=True)
    return [query_gain(one.logprobs, other.logprobs) for one, other in pairs]


async def _answers(engine: Engine, questions: Sequence[Any]) -> list[Any]:
    asker = Asker(Models(engine, engine))
    (answers,) = await asker.attend([partial(asker, questions)])
    return [answered(one) for one in answers]


def bm25(query: str, texts: Sequence[str], among: Sequence[str] = ()) -> list[float]:
    """Returns the score of each text for a query by BM25, with the words' rarity among these texts and others."""
    index = Index([word.lower() for word in content_words(text)] for text in (*texts, *among))
    found = dict(index.best({word.lower() for word in content_words(query)}))
    return [found.get(at, 0.0) for at in range(len(texts))]
