"""Contexts, on which metrics are validated: each with the quality of its answer, and its scores by the ordinary scorers
and by the classical rank measures. The scorers see no outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.metrics.arrays import Floats
from ragguard.metrics.distraction import Relevance
from ragguard.metrics.ranking import average_precision, hits, ndcg, precision, recall, reciprocal_rank
from ragguard.records import Failure, Passage, RetrievalStep, Run, Score
from ragguard.runtime.limiter import in_parallel
from ragguard.scorers.answers import Verdict
from ragguard.scorers.pipeline import ScoringPipeline, evaluate
from ragguard.scorers.scorer import Scorer
from ragguard.scorers.view import Caps

OUTCOMES: Mapping[Verdict, int] = {"correct": 2, "abstained": 1, "wrong": 0}
"""A graded answer as a number: to abstain is better than to be wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Passages that a model was given together, in the order it read them, and the quality of its answer.

    None stands for what the data set does not hold; an engine is asked for it where a metric needs it.
    """

    id: str
    question_id: str
    """Contexts of one question are compared with one another."""
    question: str
    passages: tuple[Passage, ...]
    references: tuple[str, ...] = ()
    relevance: tuple[float, ...] | None = None
    """Judged relevance of each passage, in the data set's own grades: 0 is irrelevant. () where the retrieval found
    nothing; None where there are no judgements, or no retrieval that ended well."""
    ideal: tuple[float, ...] | None = None
    """The grades of all judged passages of the question, where they are known: what a ranking could have had."""
    k: int | None = None
    """K, the number of places that there were in the prompt; None: as many as passages."""
    answer: str | None = None
    outcome: float | None = None
    """How good the answer was, in any unit; `OUTCOMES` where it was graded here."""
    sub_questions: tuple[str, ...] = ()
    given: Mapping[str, float] = field(default_factory=dict)
    """Numbers that the data set itself gives for the context, by name, such as another metric's."""

    @property
    def found_nothing(self) -> bool:
        """True where a retrieval ended well and brought no passage."""
        return not self.passages and self.relevance is not None

    @property
    def readable(self) -> bool:
        """True where an engine can score the context: a passage has a text, or there was nothing to read."""
        return self.found_nothing or any(passage.text.strip() for passage in self.passages)


Progress = Callable[[str, int, int], None]
"""A function that is called with the name of the work, how much of it is done, and how much there is."""


def silent(what: str, done: int, of: int, /) -> None:
    """Reports no progress."""


_CONCURRENCY = 32


@dataclass(frozen=True, slots=True)
class Scored:
    """The values of all metrics for one context."""

    context: Context
    values: Mapping[str, float]
    """The numbers by name: scores of the step and the run, and rank measures where relevance is known."""
    scores: tuple[Score, ...] = ()
    """All scores, including those of passages."""
    failures: tuple[Failure, ...] = ()
    relevance: Relevance = "probability"
    """The form of relevance in the utilities."""

    def of_passages(self, name: str) -> tuple[float | None, ...]:
        """Returns the score of that name for each passage, in the context's order; None where there is none."""
        found = {score.position: score.value for score in self.scores
                 if score.name == name and score.level == "passage"}  # fmt: skip
        return tuple(found.get(place) for place in range(1, len(self.context.passages) + 1))


def run_of(context: Context) -> Run:
    """Returns the context as a run with one retrieval, whose query is the question; with none where there was none."""
    passages = list(context.passages)
    step = RetrievalStep(
        id=f"{context.id}#1", run_id=context.id, query=context.question, passages=passages,
        candidates=list(passages), k=context.k,
    )  # fmt: skip
    return Run(
        id=context.id, question=context.question, references=list(context.references) or None,
        answer=context.answer, steps=[step] if passages or context.found_nothing else [],
        sub_questions=list(context.sub_questions) or None,
    )  # fmt: skip


def rank_measures(
    relevance: ArrayLike, ideal: ArrayLike | None = None, k: int | None = None
) -> dict[str, Floats]:
    """Returns nDCG, MAP, MRR, precision, recall and hit by their names, of one list or of many of one length.

    K is the number of places in the prompt, of which a guard may have left some empty (default: the list's length).
    Precision is a share of K, and nDCG is cut at it (`ndcg_at_k`): against all that is relevant it would be a recall
    wherever lists of one question differ in length.

    Where nothing relevant was found they are 0, as trec_eval has it: such contexts are compared with the others of
    their question. Without `ideal`, the best order is that of the list itself, and there is no recall.
    """
    total = None if ideal is None else (np.asarray(ideal) > 0).sum(axis=-1)
    values = {
        "ndcg_at_k": ndcg(relevance, k or np.shape(relevance)[-1] or None, ideal=ideal),
        "average_precision": average_precision(relevance, total=total),
        "reciprocal_rank": reciprocal_rank(relevance),
        "precision": precision(relevance, k),
        "hits": hits(relevance),
    }
    if total is not None:
        values["recall"] = recall(relevance, total=total)
    return {name: np.nan_to_num(np.asarray(value, dtype=np.float64)) for name, value in values.items()}


def rank_values(context: Context) -> dict[str, float]:
    """Returns the rank measures of a context; none where the relevance of its passages is not known."""
    if context.relevance is None:
        return {}
    found = rank_measures(context.relevance, context.ideal, context.k)
    return {name: float(value) for name, value in found.items()}


async def score_contexts(
    contexts: Sequence[Context],
    engine: Engine,
    *,
    judge: Engine | None = None,
    scorers: Sequence[str | Scorer] = ("utility",),
    relevance: Relevance = "probability",
    progress: Progress = silent,
) -> list[Scored]:
    """Returns the values of all metrics for each context, in their order.

    A score that an engine could not give is a failure of that context. Nothing is left out for its length.
    Questions that two contexts share are asked once.
    """
    longest = max((len(context.passages) for context in contexts), default=1)
    shared = connect(engine)
    pipeline = ScoringPipeline(
        shared,
        judge=shared if judge is None or judge is engine else connect(judge),
        scorers=scorers,
        relevance=relevance,
        caps=Caps(passages=max(longest, 1), sub_questions=64, prompt_tokens=10**9),
    )

    done = 0

    async def scored(context: Context) -> Scored:
        nonlocal done
        run = run_of(context)
        found = await evaluate(run, pipeline.results(run))
        values = {score.name: score.value for score in found.scores if score.level != "passage"}
        done += 1
        progress("scoring", done, len(contexts))
        return Scored(
            context,
            values | rank_values(context),
            tuple(found.scores),
            tuple(found.failures),
            relevance=relevance,
        )

    progress("scoring", 0, len(contexts))
    return await in_parallel([partial(scored, one) for one in contexts], _CONCURRENCY)
