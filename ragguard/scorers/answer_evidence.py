"""Evidence that a passage brings the answer, by the references: if the models may not judge passages themselves.

A model that failed its examination in abstention or relevance still tells how probable it finds a reference with and
without a passage, and words are compared for nothing. Both together say of a passage whether it brings the answer.
"""

from __future__ import annotations

from ragguard.errors import ProbeFailed, RagguardError
from ragguard.facts.run_facts import findable, mentions
from ragguard.metrics.answers import brings_answer
from ragguard.scorers.contexts import CLOSED_BOOK, BeliefContext, Key
from ragguard.scorers.estimates import Beliefs, likelihoods
from ragguard.scorers.probes import Reading
from ragguard.scorers.question import Ask
from ragguard.scorers.scorer import ScoreWriter
from ragguard.scorers.view import View


async def add_answer_evidence(writer: ScoreWriter, ask: Ask) -> None:
    """Adds `brings_answer` of each passage of a run with short references, if the models may not judge passages."""
    view = writer.view
    references = view.short_references
    if references and not _can_judge(view):
        phrases, nothing = findable(references), BeliefContext(CLOSED_BOOK)
        passages = [(step, at, step.all[at].text) for step in view.steps for at in sorted(step.judged)]
        contexts = {CLOSED_BOOK: nothing} | {(text,): BeliefContext((text,), (0,)) for *_, text in passages}
        beliefs = await likelihoods(view, contexts, references, ask)
        for step, at, text in passages:
            stands, gain = mentions(text, phrases), _gain(beliefs, (text,))
            # Where the probability of the references is not known, the words alone tell.
            facts: dict[str, int | str] = {"how": "words"} if gain is None else {}
            writer.add(
                "brings_answer", Reading(brings_answer(stands, gain), None, facts), step=step, at=at,
                label="has a reference" if stands else "", reference_source="gold", references=references,
            )  # fmt: skip


def _can_judge(view: View) -> bool:
    try:
        view.setting.exam.check("abstention", "relevance")
    except ProbeFailed:
        return False
    return True


def _gain(beliefs: Beliefs, context: Key) -> float | None:
    """Returns how much likelier a context makes the likeliest reference, in nats a token; None if it is not known."""
    before, after = beliefs[CLOSED_BOOK], beliefs[context]
    if isinstance(before, RagguardError) or isinstance(after, RagguardError):
        return None
    return after.estimates["mean_logprob"].value - before.estimates["mean_logprob"].value
