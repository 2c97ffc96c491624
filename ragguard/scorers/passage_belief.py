"""Scores about what each passage does to the belief in the answer: alone, and among all that was read.

By the likelihood of given texts: nothing is drawn and nobody judges.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ragguard.errors import CapExceeded, RagguardError
from ragguard.metrics.credit import is_used, joint_gain
from ragguard.records import Result
from ragguard.runtime.arguments import true_or_false
from ragguard.scorers.contexts import CLOSED_BOOK, BeliefContext, Key, window
from ragguard.scorers.estimates import BeliefIn, Beliefs, likelihoods
from ragguard.scorers.joint import question_gains, usual_gain
from ragguard.scorers.leave_out import PassageLoss, contributions
from ragguard.scorers.probes import Reading
from ragguard.scorers.question import Ask, answered
from ragguard.scorers.scorer import ScoreWriter
from ragguard.scorers.target import Target, own_answer, target_of
from ragguard.scorers.view import View

_CITATION = re.compile(r"\s*\[(\d+(?:\s*[,;]\s*\d+)*)\]")
_NOT_IN_WINDOW = CapExceeded(
    "the model's context is too short for all that was read; take a model that reads more"
)


@dataclass(frozen=True, slots=True)
class PassageBelief:
    """Gives `delta_likelihood` of each passage, and with `in_context` also `contribution`, `joint_gain` (in
    runs of several hops), `unused_share` and `cited_used`."""

    name: ClassVar[str] = "passages"
    version: ClassVar[str] = "1"
    models: ClassVar[tuple[str, ...]] = ("engine",)
    live = "so far"

    in_context: bool = False
    """True to measure also what each passage contributes among all that was read: one prompt more for each passage,
    with all others in it; of many passages fewer, as those that change nothing are left out together."""

    def __post_init__(self) -> None:
        true_or_false("PassageBelief.in_context", self.in_context)

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        writer = ScoreWriter(view, self)
        writer.left_out()
        if not view.run.question.strip():
            return writer.results()
        own = _own_answer(view)
        target = own if not view.references else target_of(view)
        targets = [
            one for one in dict.fromkeys((target, own) if self.in_context else (target,)) if one.references
        ]
        whole = window(view)([step for step in view.steps if step.readable])
        texts = dict.fromkeys(step.all[at].text for step in view.steps for at in step.judged)
        alone: dict[Key, BeliefContext] = {CLOSED_BOOK: BeliefContext(CLOSED_BOOK)}
        alone |= {(text,): BeliefContext((text,), (0,)) for text in texts}
        # Side by side, so that all that can be asked at once is one wave.
        beliefs, in_context, questions = await asyncio.gather(
            asyncio.gather(*(likelihoods(view, alone, one.references, ask) for one in targets)),
            contributions(view, whole, [one.references for one in targets] if self.in_context else (), ask),
            question_gains(view, view.steps if self.in_context else (), ask),
        )
        for one, known in zip(targets, beliefs, strict=True):
            if one is target:
                _add_alone(writer, one, known)
        for one, known, lost in zip(targets, beliefs, in_context, strict=False):
            _add_in_context(writer, one, whole, lost, used=_used(whole, lost, known) if one is own else None)
            if one is target:
                _add_joint(writer, one, whole, lost, questions)
        return writer.results()


def _own_answer(view: View) -> Target:
    """Returns the run's own answer without its citations."""
    own = own_answer(view)
    return replace(own, references=tuple(_CITATION.sub("", one).strip() for one in own.references))


def _add_alone(writer: ScoreWriter, target: Target, beliefs: Beliefs) -> None:
    """Adds what each passage does to the likelihood with nothing else in the context."""
    for step in writer.view.steps:
        for at in sorted(step.judged):
            with writer.failing(f"delta_likelihood of passage {at + 1}", step):
                known = answered(beliefs[(step.all[at].text,)])
                before = answered(beliefs[CLOSED_BOOK]).estimates["per_token"].value
                after = known.estimates["per_token"].value
                said = f"{before:.2f} → {after:.2f}"
                _add(
                    writer,
                    "delta_likelihood",
                    after - before,
                    target,
                    step=step,
                    at=at,
                    explanation=said,
                    metadata=known.metadata,
                )


def _add_in_context(
    writer: ScoreWriter,
    target: Target,
    whole: BeliefContext,
    lost: Sequence[PassageLoss] | RagguardError,
    used: Mapping[str, bool] | None,
) -> None:
    """Adds what each passage that was read contributes; with `used`, also which of them the run's answer rests on."""
    by_text = {} if isinstance(lost, RagguardError) else dict(zip(whole.passages, lost, strict=True))
    for step in writer.view.steps:
        for at in step.got:
            text = step.all[at].text
            if not text.strip():
                continue
            with writer.failing(f"contribution of passage {at + 1}", step):
                if isinstance(lost, RagguardError):
                    raise lost
                if text not in by_text:
                    raise _NOT_IN_WINDOW
                value, _, together = by_text[text]
                label = "" if used is None else "used" if used[text] else "not used"
                facts = {"together": together} if together > 1 else {}
                _add(writer, "contribution", value, target, step=step, at=at, label=label, metadata=facts)
    if used:
        unused = sum(not one for one in used.values())
        _add(
            writer,
            "unused_share",
            unused / len(used),
            target,
            explanation=f"{unused} of {len(used)} passages",
        )
        _add_citations(writer, target, [used[text] for text in whole.passages])


def _add_joint(
    writer: ScoreWriter,
    target: Target,
    whole: BeliefContext,
    lost: Sequence[PassageLoss] | RagguardError,
    questions: Mapping[str, Reading | RagguardError],
) -> None:
    """Adds how each passage bears on question and answer together, where both parts are known."""
    by_text = {} if isinstance(lost, RagguardError) else dict(zip(whole.passages, lost, strict=True))
    usual = usual_gain(questions)
    for step in writer.view.steps:
        for at in step.got:
            text = step.all[at].text
            question = questions.get(text)
            if isinstance(question, Reading) and text in by_text:
                part = by_text[text].log
                more = question.value - usual
                both = f"question {more:+.2f}, reference {part:+.2f}"
                joint = joint_gain(more, part)
                _add(writer, "joint_gain", joint, target, step=step, at=at, explanation=both)


def _add_citations(writer: ScoreWriter, target: Target, used: Sequence[bool]) -> None:
    """Adds the share of the answer's citations, as `[2]`, of a passage that it rests on, by the order of what was
    read."""
    lists = _CITATION.findall(writer.view.run.answer or "")
    cited = [*dict.fromkeys(int(number) for one in lists for number in re.findall(r"\d+", one))]
    if not cited:
        return
    wrong = [number for number in cited if not (1 <= number <= len(used) and used[number - 1])]
    said = ", ".join(f"[{n}] {'is not used' if 1 <= n <= len(used) else 'is no passage'}" for n in wrong)
    _add(writer, "cited_used", 1 - len(wrong) / len(cited), target, explanation=said)


def _used(
    whole: BeliefContext, lost: Sequence[PassageLoss] | RagguardError, alone: Beliefs
) -> Mapping[str, bool] | None:
    """Returns for each passage that was read whether the answer rests on it; None where that is not known."""
    if isinstance(lost, RagguardError) or isinstance(closed := alone[CLOSED_BOOK], RagguardError):
        return None
    found: dict[str, bool] = {}
    for text, one in zip(whole.passages, lost, strict=True):
        known = alone.get((text,))
        if not isinstance(known, BeliefIn):
            return None
        gain = known.estimates["per_token"].value - closed.estimates["per_token"].value
        found[text] = is_used(one.value, gain)
    return found


def _add(writer: ScoreWriter, name: str, value: float, target: Target, **fields: Any) -> None:
    support = "support" if target.source == "answer" else ""
    about = {"reference_source": target.source, "references": target.given}
    writer.add(name, value, **{"label": support} | fields | about)
