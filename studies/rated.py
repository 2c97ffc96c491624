"""The worth of a passage as a model rates it (Dai et al. 2025, appendix B.2): directly, or as the difference between
two ratings of the answer, with the passage and without. Our own wording, on a scale of one digit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragguard.engines.base import Engine

DIGITS = tuple("0123456789")
_DIRECT = (
    "{context}Question: {question}\nAnswer: {answer}\n\nHow much does the text above contribute to this answer? 0 "
    "means nothing at all, 9 means that the answer stands in it. Reply with one digit from 0 to 9."
)
_RIGHT = (
    "{context}Question: {question}\nAnswer: {answer}\n\nHow right is this answer? 0 means that it is surely wrong, 9 "
    "that it is surely right. Reply with one digit from 0 to 9."
)


async def direct(engine: Engine, question: str, answer: str, texts: Sequence[Sequence[str]]) -> list[float]:
    """Returns for each list of passages the expected rating of what it contributes to the answer."""
    return await _rated(engine, _DIRECT, question, answer, texts)


async def rightness(
    engine: Engine, question: str, answer: str, texts: Sequence[Sequence[str]]
) -> list[float]:
    """Returns for each list of passages, which may be empty, the expected rating of the answer with it."""
    return await _rated(engine, _RIGHT, question, answer, texts)


async def _rated(
    engine: Engine, template: str, question: str, answer: str, texts: Sequence[Sequence[str]]
) -> list[float]:
    prompts = [
        template.format(
            context="".join(f"Text: {text}\n\n" for text in some), question=question, answer=answer
        )
        for some in texts
    ]
    p = np.asarray(await engine.label_probs(prompts, DIGITS))
    return [float(one) for one in p @ np.arange(len(DIGITS)) / p.sum(axis=1)]
