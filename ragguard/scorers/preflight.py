"""Asks the models one label question and one sample before many runs are scored, so that little is spent in vain."""

from __future__ import annotations

from ragguard.engines.base import Engine
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.errors import LowLabelMass, shown_apart
from ragguard.scorers.models import SCORING, Models
from ragguard.scorers.probes.abstention import abstention
from ragguard.scorers.probes.belief import belief
from ragguard.scorers.probes.question import answered
from ragguard.scorers.probes.rating import LEAST_MASS
from ragguard.scorers.probes.relevance import relevance

_QUESTION, _PASSAGE = "Who founded the firm?", "Ada Berg founded the firm."


async def check_models(engine: Engine, judge: Engine, prompts: PromptSet | None = None) -> None:
    """Raises LowLabelMass for a judge that does not answer with a label, and what a model raises that cannot be asked.

    Args:
        engine: The model that reads.
        judge: The model that judges; it may be the engine.
        prompts: The prompts; None: those that fit each model.
    """
    models = Models(engine, judge, priority=SCORING)
    theirs = prompts or load_prompts((await judge.info()).prompts)
    mine = prompts or load_prompts((await engine.info()).prompts)
    question = relevance(theirs, _QUESTION, _PASSAGE)
    (answer,) = await models.respond([question])
    mass = sum(getattr(answered(answer), "p", ()))
    if mass < LEAST_MASS:
        shown, least = shown_apart(mass, LEAST_MASS)
        raise LowLabelMass(
            f"the model does not answer {' or '.join(question.labels)}: it puts {shown} of its probability on them, "
            f"and {least} is needed",
            "take an instruction-tuned model or another --judge, or, where the model thinks, switch its thinking off",
        )
    await models.respond([abstention(mine, _QUESTION, _PASSAGE)])
    await models.respond([belief(mine, _QUESTION, (_PASSAGE,), cut_order=(0,), n=2, seed=0)])
