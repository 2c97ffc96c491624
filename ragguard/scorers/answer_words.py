"""Scores of the answer by its words, for which no model is asked: whether a reference is in what was read, which names
and figures of the answer no passage has, and, if words decide it, whether the answer is right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar

from ragguard.facts.run_facts import Phrase, findable, mentioned, mentions, names_in
from ragguard.metrics.answer_verdict import right_by_words
from ragguard.metrics.answers import is_abstention
from ragguard.records import Result
from ragguard.scorers.answer_support import supported_by_words
from ragguard.scorers.answers import HOLDS_WORDS, VALUES
from ragguard.scorers.question import Ask
from ragguard.scorers.scorer import ScoreWriter
from ragguard.scorers.view import View
from ragguard.text.answer_words import is_small

_NO_NAME = frozenset(
    "mayor director doctor dr professor prof mister mr mrs ms miss sir lady lord king queen prince princess president "
    "minister senator governor general captain saint pope bishop chancellor judge either both neither while although "
    "though when if because since after before but".split()
)
"""Titles, and function words that `is_small` has not, which may stand before a name with a capital."""
_SHOWN = 5
"""The most names and figures without a passage that are listed."""


@dataclass(frozen=True, slots=True)
class AnswerWords:
    """Gives `answer_in_context` of hops and runs, `ungrounded`, and `answer_correct` where words decide it."""

    name: ClassVar[str] = "words"
    version: ClassVar[str] = "1"
    models: ClassVar[tuple[str, ...]] = ()

    verdict: bool = True
    """False: `answer_correct` is left to `Answers`, which asks a judge where words do not decide."""

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        writer = ScoreWriter(view, self)
        answer, references = view.run.answer, view.short_references
        says = answer is not None and not is_abstention(answer, view.setting.language)
        names = _new_names(answer or "", view.run.question) if says else {}
        phrases = findable(references)
        # Each text is looked through once for everything that is looked for.
        sought = [*phrases, *(form for forms in names.values() for form in forms)]
        found = {
            step.step.id: {phrase for at in step.got for phrase in mentioned(step.all[at].text, sought)}
            for step in view.steps
        }
        stands = None
        if phrases:
            about: dict[str, Any] = {"reference_source": "gold", "references": references}
            for step in view.steps:
                writer.add("answer_in_context", bool(found[step.step.id] & {*phrases}), step=step, **about)
            stands = any(here & {*phrases} for here in found.values())
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
        right = right_by_words(answer, references, view.run.question, view.setting.language)
        label = "correct" if right else "wrong"
        if is_abstention(answer, view.setting.language):
            label = "abstained"
        elif right is None:
            return
        elif right and stands is False and not supported_by_words(view):
            label = "correct, unsupported"
        writer.add(
            "answer_correct", VALUES[label], label=label, explanation=HOLDS_WORDS if right else "",
            reference_source="gold", references=references,
        )  # fmt: skip


def _new_names(answer: str, question: str) -> dict[str, list[Phrase]]:
    """Returns the names and figures of an answer that the question does not have, each with the forms in which it is
    looked for."""
    names = {name: findable(_forms(name, answer)) for name in names_in(answer)}
    return {name: forms for name, forms in names.items() if forms and not mentions(question, forms)}


def _forms(name: str, answer: str) -> Iterator[str]:
    """Yields a name, and without words before it that are no part of it: titles, function words, and the first word of
    a sentence if two remain."""
    yield name
    words = name.split()
    begins = re.search(rf"(?:^|[.!?]\s+){re.escape(name)}", answer) is not None
    while len(words) > 1:
        first = words.pop(0).lower().strip(".")
        if not (first in _NO_NAME or is_small(first) or (begins and len(words) > 1)):
            return
        begins = False
        yield " ".join(words)
