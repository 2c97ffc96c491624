"""Scores about how a hop bears on question and answer together, for runs of several hops.

A bridge makes the question likelier and the answer not, the last hop the answer and the question less: their sum knows
both. In runs of one hop whose passages a search engine found, the question's part says nothing, so there is no sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ragguard.errors import RagguardError
from ragguard.facts.steps import StepView
from ragguard.metrics.answers import query_gain
from ragguard.metrics.credit import joint_gain
from ragguard.records import CUT_TOKENS
from ragguard.scorers.contexts import Layout, StepContexts
from ragguard.scorers.probes import Reading, query_likelihood
from ragguard.scorers.question import Ask, TextAnswer, answered
from ragguard.scorers.scorer import ScoreWriter


async def add_joint_gains(
    writer: ScoreWriter,
    layout: Layout,
    ask: Ask,
    reference_gain: Callable[[StepContexts], tuple[float, Mapping[str, Any]]],
) -> None:
    """Adds `question_gain` of each passage that was read and of each hop, and each hop's `reference_gain` and
    `joint_gain`, unless fewer than two hops brought something to read or the prompts have no question to be likely.

    Args:
        reference_gain: Returns the reference's part of a hop, and fields that its scores share; raises the error for
            which it is not known.
    """
    prompts, question = writer.view.setting.prompts, writer.view.run.question
    reading = [one.step for one in layout.steps if one.step.readable]
    if len(reading) < 2 or not {"query", "query_closed"} <= prompts.templates.keys():
        return
    texts = list(dict.fromkeys(text for step in reading for text in step.texts(step.got)))
    asked = [
        query_likelihood(prompts, question),
        *(query_likelihood(prompts, question, text) for text in texts),
    ]
    closed, *given = await ask(asked)
    known = dict(zip(texts, given, strict=True))
    for contexts in layout.steps:
        step = contexts.step
        if not step.scored:
            continue
        with writer.failing("joint_gain", step):
            gains = [_write_passage(writer, step, at, known, closed) for at in step.got if at in step.judged]
            best = max(gains, default=0.0)
            more = None if gains else "no passage that was not there before"
            writer.add("question_gain", best, step=step, stderr=0.0, explanation=more or "the best passage")
            part, about = reference_gain(contexts)
            about = {**about, "explanation": more or f"question {best:+.2f}, reference {part:+.2f}"}
            writer.add("reference_gain", part, step=step, **{**about, "explanation": more or ""})
            writer.add("joint_gain", joint_gain(best, part), step=step, **about)


def _write_passage(
    writer: ScoreWriter,
    step: StepView,
    at: int,
    known: Mapping[str, TextAnswer | RagguardError],
    closed: TextAnswer | RagguardError,
) -> float:
    """Adds how much likelier a passage makes the run's question, and returns it."""
    given = answered(known[step.all[at].text])
    gain = query_gain(given.logprobs, answered(closed).logprobs)
    cut = {CUT_TOKENS: given.truncated} if given.truncated else {}
    writer.add("question_gain", Reading(gain, 0.0, cut, given.usage), step=step, at=at)
    return gain
