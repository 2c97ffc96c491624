"""Evidence that a passage brings the answer, by the references: if the models may not judge passages themselves.

A model that failed its examination in abstention or relevance still tells how probable it finds a reference with and
without a passage, and words are compared for nothing. Both together say of a passage whether it brings the answer.
"""

from __future__ import annotations

from contextlib import suppress

from ragguard.errors import RagguardError
from ragguard.facts.run_facts import findable, mentions
from ragguard.metrics.answers import brings_answer
from ragguard.scorers.contexts import CLOSED_BOOK, single_contexts
from ragguard.scorers.estimates import change_between, likelihoods
from ragguard.scorers.probes import Reading
from ragguard.scorers.question import Ask
from ragguard.scorers.scorer import ScoreWriter


async def add_answer_evidence(writer: ScoreWriter, ask: Ask) -> None:
    """Adds `brings_answer` of each passage of a run with short references, if the models may not judge passages."""
    view = writer.view
    references = view.short_references
    if not references or not view.setting.exam.lacking("abstention", "relevance"):
        return
    phrases = findable(references)
    passages = [(step, at, step.all[at].text) for step in view.steps for at in sorted(step.judged)]
    beliefs = await likelihoods(view, single_contexts(text for *_, text in passages), references, ask)
    for step, at, text in passages:
        gain: float | None = None
        with suppress(RagguardError):  # without the probability of the references, the words alone tell
            gain = change_between(beliefs, CLOSED_BOOK, (text,), "mean_logprob")
        stands = mentions(text, phrases)
        facts: dict[str, int | str] = {"how": "words"} if gain is None else {}
        writer.add(
            "brings_answer", Reading(brings_answer(stands, gain), None, facts), step=step, at=at,
            label="has a reference" if stands else "", reference_source="gold", references=references,
        )  # fmt: skip
