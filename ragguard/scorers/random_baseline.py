"""Δ likelihood beside random passages: what a hop is worth beyond what any text of its length in the prompt does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ragguard.errors import ScoringError
from ragguard.records import Result
from ragguard.runtime.arguments import texts_of
from ragguard.scorers.contexts import BeliefContext, window
from ragguard.scorers.estimates import change_between, in_words, likelihoods
from ragguard.scorers.question import Ask, answered
from ragguard.scorers.scorer import ScoreWriter
from ragguard.scorers.target import target_of
from ragguard.scorers.view import View, read_texts

_MOST_KEPT = 64
"""The most passages of earlier runs that are kept to stand before other questions."""


@dataclass(frozen=True, slots=True)
class RandomBaseline:
    """Gives `delta_likelihood_random` of each hop by itself, and of the run."""

    name: ClassVar[str] = "random baseline"
    version: ClassVar[str] = "2"
    models: ClassVar[tuple[str, ...]] = ("engine",)

    passages: tuple[str, ...] = ()
    """Texts of other questions, such as those that other runs of a store read; those of the run itself are left out.
    The same ones, in the same order, stand before every question, so that an engine reads them once for each number.
    Empty: the first 64 that the runs scored before in this process read, so that the first runs have no such score."""
    _read_before: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The texts that earlier runs read, each with its question."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "passages", tuple(texts_of("RandomBaseline.passages", self.passages) or ()))

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        writer, target = ScoreWriter(view, self), target_of(view)
        steps = [step for step in view.steps if step.readable]
        if not steps or not target.references or not view.run.question.strip():
            return writer.results()
        others = self._others(view)
        fit = window(view)
        hops = [(step, fit([step])) for step in steps]
        places = [*hops, (None, fit(steps))]
        contexts = {context.passages: context for _, context in places}
        for size in {len(context.passages) for _, context in places if len(context.passages) <= len(others)}:
            key = tuple(others[:size])
            contexts[key] = BeliefContext(key, tuple(reversed(range(size))))
        beliefs = await likelihoods(view, contexts, target.references, ask)
        for step, context in places:
            with writer.failing("delta_likelihood_random", step):
                key = tuple(others[: len(context.passages)])
                if len(key) < len(context.passages):
                    raise ScoringError(
                        f"{len(context.passages)} random passages are needed and {len(key)} of other questions are "
                        "known; score more runs with this RagGuard, or give RandomBaseline(passages=[...])"
                    )
                change = change_between(beliefs, key, context.passages, "per_token")
                after = answered(beliefs[context.passages]).estimates["per_token"].value
                writer.add(
                    "delta_likelihood_random", change, step=step, metadata={"random": len(key)},
                    explanation=in_words(after - change, after), **target.fields,
                )  # fmt: skip
        return writer.results()

    def _others(self, view: View) -> list[str]:
        """Returns the passages of other questions, in the order in which they stand; keeps those of the run."""
        known = dict.fromkeys(self.passages, "") or dict(self._read_before)
        for text in read_texts(view.steps):
            if len(self._read_before) < _MOST_KEPT:
                self._read_before.setdefault(text, view.run.question)
        own = {passage.text for step in view.steps for passage in step.all}
        others = [
            text
            for text, question in known.items()
            if text.strip() and text not in own and question != view.run.question
        ]
        if self.passages:
            random.Random(0).shuffle(others)
        return others
