"""Scores of the answer by its words, for which no model is asked: whether a reference stands in what was read, which of
the answer's names and figures stand in no passage, and, as far as words decide it, whether the answer is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ragguard.facts.run_facts import findable, mentions, names_in
from ragguard.facts.steps import StepView
from ragguard.metrics.answer_verdict import right_by_words
from ragguard.metrics.answers import is_abstention
from ragguard.records import Result
from ragguard.scorers.answers import HOLDS_WORDS, VALUES
from ragguard.scorers.question import Ask
from ragguard.scorers.scorer import ScoreWriter
from ragguard.scorers.view import View

_SHOWN = 5
"""The most names and figures without a passage that are listed."""


@dataclass(frozen=True, slots=True)
class AnswerWords:
    """Gives `answer_in_context` of hops and runs, `ungrounded`, and `answer_correct` where words decide it."""

    name: ClassVar[str] = "words"
    version: ClassVar[str] = "1"

    verdict: bool = True
    """False: `answer_correct` is left to `Answers`, which asks a judge where words do not decide."""

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        writer = ScoreWriter(view, self)
        answer, references = view.run.answer, view.short_references
        stands = None
        if references and (phrases := findable(references)):
            stands = False
            for step in view.steps:
                here = any(mentions(text, phrases) for text in _read(step))
                stands = stands or here
                writer.add(
                    "answer_in_context", here, step=step, reference_source="gold", references=references
                )
            writer.add("answer_in_context", stands, reference_source="gold", references=references)
        if answer is None or not answer.strip():
            return writer.results()
        if not is_abstention(answer, view.setting.language):
            self._ground(writer, answer)
        if self.verdict and references:
            self._judge(writer, answer, references, stands)
        return writer.results()

    def _ground(self, writer: ScoreWriter, answer: str) -> None:
        """Adds the share of the answer's names and figures, but for the question's, that stand in no passage read."""
        view = writer.view
        question = view.run.question
        names = [name for name in dict.fromkeys(names_in(answer)) if not mentions(question, findable([name]))]
        texts = [text for step in view.steps for text in _read(step)]
        missing = [name for name in names if not any(mentions(text, findable([name])) for text in texts)]
        if names and texts:
            listed = ", ".join(f"“{name}”" for name in missing[:_SHOWN])
            writer.add(
                "ungrounded", len(missing) / len(names),
                explanation=f"in no passage that was read: {listed}" if missing else "",
            )  # fmt: skip

    def _judge(
        self, writer: ScoreWriter, answer: str, references: Sequence[str], stands: bool | None
    ) -> None:
        """Adds `answer_correct` if words decide it; a reference in what was read supports a right answer."""
        view = writer.view
        right = right_by_words(answer, references, view.run.question, view.setting.language)
        label = "correct" if right else "wrong"
        if is_abstention(answer, view.setting.language):
            label = "abstained"
        elif right is None:
            return
        elif right and stands is False:
            label = "correct, unsupported"
        writer.add(
            "answer_correct", VALUES[label], label=label, explanation=HOLDS_WORDS if right else "",
            reference_source="gold", references=references,
        )  # fmt: skip


def _read(step: StepView) -> list[str]:
    return [step.all[at].text for at in step.got]
