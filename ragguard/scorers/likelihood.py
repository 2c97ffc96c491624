"""Belief by likelihood: how probable the reader finds the reference as its answer in each context.

It asks one prompt for each context and reference, draws nothing and compares nothing. Its scores stand beside those of
sampling and are never averaged with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ragguard.errors import RagguardError
from ragguard.metrics.likelihood import likelihood, likelihood_total, mean_logprob
from ragguard.records import CUT_TOKENS, LEFT_OUT, ReferenceSource, Usage
from ragguard.scorers.contexts import CLOSED_BOOK, Change, Key, Layout
from ragguard.scorers.probes.belief import likelihood as asked_likelihood
from ragguard.scorers.probes.question import Ask, TextAnswer, answered
from ragguard.scorers.score_writer import ScoreWriter
from ragguard.scorers.view import StepView


class _Likely(NamedTuple):
    """The likelihood of the references in one context."""

    per_token: float
    total: float
    mean_logprob: float
    cut: int
    usage: Usage


@dataclass(frozen=True, slots=True)
class LikelihoodReport:
    """Asks for the likelihood of the references in the contexts of a run, and adds the scores that follow."""

    writer: ScoreWriter
    layout: Layout
    references: tuple[str, ...]
    source: ReferenceSource
    given: tuple[str, ...]
    """The references as the run has them."""

    async def add(self, ask: Ask) -> dict[Key, float]:
        """Asks for the likelihoods and adds the scores or failures; returns the references' probability in each
        context."""
        found = await self._ask(ask)
        paid: set[Key] = set()
        self._score("likelihood_closed_book", {CLOSED_BOOK: 1.0}, found, paid)
        for contexts in self.layout.steps:
            step = contexts.step
            if not step.readable and not step.empty:
                continue
            now = {contexts.upto: 1.0}
            alone = {contexts.alone: 1.0, CLOSED_BOOK: -1.0} if contexts.alone != CLOSED_BOOK else {}
            self._score("likelihood", now, found, paid, step)
            self._score("likelihood_total", now, found, paid, step, kind="total")
            self._score("delta_likelihood", contexts.change, found, paid, step)
            self._score("delta_likelihood_alone", alone, found, paid, step)
            self._score("log_gain", contexts.change, found, paid, step, kind="mean_logprob")
        self._score("delta_likelihood_total", self.layout.total, found, paid)
        return {key: one.total for key, one in found.items() if not isinstance(one, RagguardError)}

    async def _ask(self, ask: Ask) -> dict[Key, _Likely | RagguardError]:
        view = self.writer.view
        contexts = list(self.layout.contexts.items())
        questions = [
            asked_likelihood(
                view.setting.prompts, view.run.question, context.passages, text, cut_order=context.cut_order
            )
            for _, context in contexts
            for text in self.references
        ]
        answers = await ask(questions)
        size = len(self.references)
        return {
            key: _joined(answers[place * size : (place + 1) * size])
            for place, (key, _) in enumerate(contexts)
        }

    def _score(
        self,
        name: str,
        change: Change,
        found: Mapping[Key, _Likely | RagguardError],
        paid: set[Key],
        step: StepView | None = None,
        kind: str = "per_token",
    ) -> None:
        """Adds one score: the weighted sum, over the contexts of a change, of one kind of likelihood."""
        known: dict[Key, _Likely] = {}
        for key in change:
            one = found[key]
            if isinstance(one, RagguardError):
                self.writer.fail(one, name, step)
                return
            known[key] = one
        fresh = [one.usage for key, one in known.items() if key not in paid]
        paid.update(known)
        metadata: dict[str, Any] = {}
        if cut := max((one.cut for one in known.values()), default=0):
            metadata[CUT_TOKENS] = cut
        if dropped := max((self.layout.contexts[key].dropped for key in change), default=0):
            metadata[LEFT_OUT] = dropped
        self.writer.add(
            name, sum(times * getattr(known[key], kind) for key, times in change.items()), step=step, stderr=0.0,
            usage=sum(fresh, Usage()), label="support" if self.source == "answer" else "",
            reference_source=self.source, references=self.given, metadata=metadata,
        )  # fmt: skip


def _joined(answers: list[TextAnswer | RagguardError]) -> _Likely | RagguardError:
    try:
        texts = [answered(answer) for answer in answers]
    except RagguardError as error:
        return error
    logprobs = [text.logprobs for text in texts]
    return _Likely(
        likelihood(logprobs),
        likelihood_total(logprobs),
        mean_logprob(logprobs),
        cut=max(text.truncated for text in texts),
        usage=sum((text.usage for text in texts), Usage()),
    )
