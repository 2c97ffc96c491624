"""eRAG (Salemi and Zamani 2024): the relevance of a passage is the quality of the reader's answer to it alone.

The baseline is costly: it draws one answer for each passage, where utility needs the probabilities of two labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ragguard.engines.base import Engine
from ragguard.lab.validation.answering import with_answers
from ragguard.lab.validation.contexts import Context, Progress, silent
from ragguard.metrics.answers import rouge_l

Measure = Callable[[str, Sequence[str]], float]


async def with_downstream_relevance(
    contexts: Sequence[Context], engine: Engine, *, measure: Measure = rouge_l, progress: Progress = silent
) -> list[Context]:
    """Returns the contexts in their order; a passage's relevance is the quality of the reader's answer to it alone.

    `measure` compares an answer with the references (default: ROUGE-L). The rank measures of such a context are
    eRAG's. Contexts without references have no relevance.
    """
    alone = [
        Context(
            id=f"{context.id}/{place}",
            question_id=context.question_id,
            question=context.question,
            passages=(passage,),
            references=context.references,
        )
        for context in contexts
        if context.references
        for place, passage in enumerate(context.passages)
    ]
    worth = iter(
        0.0 if one.answer is None else float(measure(one.answer, one.references))
        for one in await with_answers(alone, engine, progress=progress)
    )
    return [
        replace(
            context,
            relevance=tuple(next(worth) for _ in context.passages)
            if context.references or context.found_nothing
            else None,
            ideal=None,
        )
        for context in contexts
    ]
