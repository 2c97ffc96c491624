"""Scores about what a hop contributes to question and answer together, for runs of several hops.

A bridge makes the question likelier and the answer not, the last hop the answer and the question less: their sum knows
both. In runs of one hop whose passages a search engine found, the question's part says nothing, so there is no sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragguard.errors import RagguardError
from ragguard.facts.hop_sentence import JointGain
from ragguard.facts.steps import StepView
from ragguard.scorers.contexts import Layout, StepContexts
from ragguard.scorers.passages import query_gains
from ragguard.scorers.probes import Reading
from ragguard.scorers.question import Ask, answered
from ragguard.scorers.scorer import ScoreWriter
from ragguard.scorers.view import View, read_texts


async def question_gains(
    view: View, steps: Sequence[StepView], ask: Ask
) -> Mapping[str, Reading | RagguardError]:
    """Returns how much likelier each passage that was read makes the run's question, by its text; empty if fewer than
    two hops brought something to read, and if the prompts have no question to be likely."""
    prompts, question = view.setting.prompts, view.run.question
    reading = [step for step in steps if step.readable]
    if len(reading) < 2 or not {"query", "query_closed"} <= prompts.templates.keys():
        return {}
    texts = read_texts(reading)
    gains = await query_gains(prompts, [(question, text) for text in texts], ask)
    return dict(zip(texts, gains, strict=True))


def usual_gain(gains: Mapping[str, Reading | RagguardError]) -> float:
    """Returns the mean question gain of the passages of a run: any text about the subject makes a question likelier."""
    known = [one.value for one in gains.values() if isinstance(one, Reading)]
    return sum(known) / len(known) if known else 0.0


async def add_joint_gains(
    writer: ScoreWriter,
    layout: Layout,
    ask: Ask,
    reference_gain: Callable[[StepContexts], tuple[float, Mapping[str, Any]]],
) -> None:
    """Adds `question_gain` of each passage that was read and of each hop, and each hop's `reference_gain` and
    `joint_gain`, if there are `question_gains`.

    Args:
        reference_gain: Returns the reference's part of a hop, and fields that its scores share; raises the error for
            which it is not known.
    """
    known = await question_gains(writer.view, [contexts.step for contexts in layout.steps], ask)
    usual = usual_gain(known)
    for contexts in layout.steps if known else ():
        step = contexts.step
        if not step.scored:
            continue
        with writer.failing("joint_gain", step):
            gains = {at: answered(known[step.all[at].text]) for at in step.got if at in step.judged}
            for at, gain in gains.items():
                writer.add("question_gain", gain, step=step, at=at)
            best = max((gain.value for gain in gains.values()), default=0.0)
            gained, origin = reference_gain(contexts)
            nothing = "" if gains else "no passage that was not there before"
            parts = JointGain.of(best - usual if gains else 0.0, gained)
            writer.add(
                "question_gain", best, step=step, stderr=0.0, explanation=nothing or "of the best passage"
            )
            writer.add("reference_gain", gained, step=step, explanation=nothing, **origin)
            writer.add("joint_gain", parts.value, step=step, explanation=nothing or str(parts), **origin)
