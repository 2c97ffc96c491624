"""Scores of the answer by its words, for which no model is asked: whether a reference is in what was read, which names
and figures of the answer no passage has, and, if words decide it, whether the answer is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar

from ragguard.records import Result
from ragguard.scorers.answer_support import supported_by_words
from ragguard.scorers.answers import HOLDS_WORDS, VALUES
from ragguard.scorers.question import Ask
from ragguard.scorers.scorer import ScoreWriter
from ragguard.scorers.view import View
from ragguard.text.statements.abstention import is_abstention
from ragguard.text.statements.names import new_names
from ragguard.text.statements.parts import parts_of
from ragguard.text.statements.phrases import Phrase, findable, mentioned
from ragguard.text.statements.verdict import verdict_by_words

_SHOWN = 5
"""The most names and figures without a passage that are listed."""


@dataclass(frozen=True, slots=True)
class AnswerWords:
    """Gives `answer_in_context` of hops and runs, `ungrounded`, and `answer_correct` where words decide it."""

    name: ClassVar[str] = "words"
    version: ClassVar[str] = "2"
    models: ClassVar[tuple[str, ...]] = ()

    verdict: bool = True
    """False: `answer_correct` is left to `Answers`, which asks a judge where words do not decide."""

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        writer = ScoreWriter(view, self)
        answer, references = view.run.answer, view.short_references
        says = answer is not None and not is_abstention(answer, view.setting.language)
        names = new_names(answer or "", view.run.question) if says else {}
        phrases = findable(references)
        # Each text is looked through once for everything that is looked for.
        divided = [findable(parts) for one in references if (parts := parts_of(one))]
        sought = [*phrases, *(form for forms in (*names.values(), *divided) for form in forms)]
        found = {
            step.step.id: {phrase for at in step.got for phrase in mentioned(step.all[at].text, sought)}
            for step in view.steps
        }
        stands = None
        if phrases:
            about: dict[str, Any] = {"reference_source": "gold", "references": references}
            for step in view.steps:
                writer.add("answer_in_context", bool(found[step.step.id] & {*phrases}), step=step, **about)
            read = set[Phrase]().union(*found.values())
            stands = bool(read & {*phrases}) or any(read >= {*parts} for parts in divided)
            writer.add("answer_in_context", stands, **about)
        if names and any(step.got for step in view.steps):
            self._ground(writer, names, set[Phrase]().union(*found.values()))
        if self.verdict and references and answer is not None and answer.strip():
            self._judge(writer, answer, references, stands)
        return writer.results()

    def _ground(
        self, writer: ScoreWriter, names: Mapping[str, Sequence[Phrase]], stated: Set[Phrase]
    ) -> None:
        """Adds the share of the answer's names and figures, but for the question's, that stand in no passage read."""
        missing = [name for name, forms in names.items() if not stated & {*forms}]
        listed = ", ".join(f"“{name}”" for name in missing[:_SHOWN])
        writer.add(
            "ungrounded", len(missing) / len(names),
            explanation=f"in no passage that was read: {listed}" if missing else "",
        )  # fmt: skip

    def _judge(
        self, writer: ScoreWriter, answer: str, references: Sequence[str], stands: bool | None
    ) -> None:
        """Adds `answer_correct` if words decide it; a right answer is supported if a passage that was read has the
        words of a reference or its own."""
        view = writer.view
        verdict = verdict_by_words(answer, references, view.run.question, view.setting.language)
        if verdict.right is None:
            return
        label = "abstained" if verdict.abstained else "correct" if verdict.right else "wrong"
        if verdict.right and stands is False and not supported_by_words(view):
            label = "correct, unsupported"
        writer.add(
            "answer_correct", VALUES[label], label=label, explanation=HOLDS_WORDS if verdict.right else "",
            reference_source="gold", references=references,
        )  # fmt: skip
