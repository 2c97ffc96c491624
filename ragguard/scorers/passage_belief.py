"""Scores about what each passage does to the belief in the answer: by itself, and among all that was read.

By the likelihood of given texts: nothing is drawn and nobody judges.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ragguard.errors import CapExceeded, RagguardError
from ragguard.facts.hop_sentence import JointGain
from ragguard.metrics.credit import is_used
from ragguard.records import Result
from ragguard.runtime.arguments import true_or_false
from ragguard.scorers.contexts import CLOSED_BOOK, BeliefContext, single_contexts, window
from ragguard.scorers.estimates import Beliefs, change_between, in_words, likelihoods
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
        alone = single_contexts(step.all[at].text for step in view.steps for at in step.judged)
        # Side by side, so that all that can be asked at once is one wave.
        beliefs, lost, questions = await asyncio.gather(
            asyncio.gather(*(likelihoods(view, alone, one.references, ask) for one in targets)),
            contributions(view, whole, [one.references for one in targets] if self.in_context else (), ask),
            question_gains(view, view.steps if self.in_context else (), ask),
        )
        for answers, known in zip(targets, beliefs, strict=True):
            if answers is target:
                _add_alone(writer, answers, known)
        for answers, known, losses in zip(targets, beliefs, lost, strict=False):
            passages = _PassagesRead(writer, answers, whole, losses)
            passages.add_contributions(passages.used(known) if answers is own else None)
            if answers is target:
                passages.add_joint_gains(questions)
        return writer.results()


def _own_answer(view: View) -> Target:
    """Returns the run's own answer without its citations."""
    own = own_answer(view)
    return replace(own, references=tuple(_CITATION.sub("", answer).strip() for answer in own.references))


def _add_alone(writer: ScoreWriter, target: Target, beliefs: Beliefs) -> None:
    """Adds what each passage does to the likelihood with nothing else in the context."""
    for step in writer.view.steps:
        for at in sorted(step.judged):
            with writer.failing(f"delta_likelihood of passage {at + 1}", step):
                key = (step.all[at].text,)
                change = change_between(beliefs, CLOSED_BOOK, key, "per_token")
                known = answered(beliefs[key])
                after = known.estimates["per_token"].value
                writer.add(
                    "delta_likelihood", change, step=step, at=at, metadata=known.metadata,
                    explanation=in_words(after - change, after), **target.fields,
                )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _PassagesRead:
    """The passages that were read, with what the belief in some answers loses without each."""

    writer: ScoreWriter
    target: Target
    whole: BeliefContext
    lost: Sequence[PassageLoss] | RagguardError

    @property
    def _losses(self) -> Mapping[str, PassageLoss]:
        """The loss without each text; raises the error for which none is known."""
        if isinstance(self.lost, RagguardError):
            raise self.lost
        return dict(zip(self.whole.passages, self.lost, strict=True))

    def used(self, alone: Beliefs) -> Mapping[str, bool] | None:
        """Returns for each passage whether the answer rests on it, by its likelihood with only that passage, too; None
        if that is not known."""
        try:
            return {
                text: is_used(loss.value, change_between(alone, CLOSED_BOOK, (text,), "per_token"))
                for text, loss in self._losses.items()
            }
        except (RagguardError, KeyError):  # KeyError: over the cap on passages
            return None

    def add_contributions(self, used: Mapping[str, bool] | None) -> None:
        """Adds what each passage contributes; with `used`, also which of them the run's answer rests on."""
        for step in self.writer.view.steps:
            for at in step.got:
                text = step.all[at].text
                if not text.strip():
                    continue
                with self.writer.failing(f"contribution of passage {at + 1}", step):
                    if (loss := self._losses.get(text)) is None:
                        raise _NOT_IN_WINDOW
                    fields = self.target.fields | {"metadata": loss.facts}
                    if used is not None:
                        fields["label"] = "used" if used[text] else "not used"
                    self.writer.add("contribution", loss.value, step=step, at=at, **fields)
        if used:
            unused = sum(not rests for rests in used.values())
            self._add_of_run("unused_share", unused / len(used), f"{unused} of {len(used)} passages")
            self._add_citations([used[text] for text in self.whole.passages])

    def add_joint_gains(self, questions: Mapping[str, Reading | RagguardError]) -> None:
        """Adds how each passage bears on question and answer together, where both parts are known."""
        if isinstance(self.lost, RagguardError):
            return
        usual, losses = usual_gain(questions), self._losses
        for step in self.writer.view.steps:
            for at in step.got:
                text = step.all[at].text
                question = questions.get(text)
                if isinstance(question, Reading) and text in losses:
                    parts = JointGain.of(question.value - usual, losses[text].log)
                    self.writer.add(
                        "joint_gain",
                        parts.value,
                        step=step,
                        at=at,
                        explanation=str(parts),
                        **self.target.fields,
                    )

    def _add_citations(self, used: Sequence[bool]) -> None:
        """Adds the share of the answer's citations, as `[2]`, of a passage that it rests on, by the order of what was
        read."""
        lists = _CITATION.findall(self.writer.view.run.answer or "")
        cited = [*dict.fromkeys(int(number) for numbers in lists for number in re.findall(r"\d+", numbers))]
        if cited:
            wrong = [number for number in cited if not (1 <= number <= len(used) and used[number - 1])]
            remarks = (f"[{n}] {'is not used' if 1 <= n <= len(used) else 'is no passage'}" for n in wrong)
            self._add_of_run("cited_used", 1 - len(wrong) / len(cited), ", ".join(remarks))

    def _add_of_run(self, name: str, value: float, explanation: str) -> None:
        self.writer.add(name, value, explanation=explanation, **self.target.fields)
