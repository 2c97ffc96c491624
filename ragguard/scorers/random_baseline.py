"""Δ likelihood against random passages: what a hop is worth beyond what any text of its length in the prompt does."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ragguard.errors import ScoringError
from ragguard.records import Result
from ragguard.runtime.arguments import texts_of
from ragguard.scorers.contexts import BeliefContext, Key, window
from ragguard.scorers.estimates import likelihoods
from ragguard.scorers.question import Ask, answered
from ragguard.scorers.scorer import ScoreWriter
from ragguard.scorers.target import target_of
from ragguard.scorers.view import View


@dataclass(frozen=True, slots=True)
class RandomBaseline:
    """Gives `delta_likelihood_random` of each hop by itself, and of the run."""

    name: ClassVar[str] = "random baseline"
    version: ClassVar[str] = "1"
    models: ClassVar[tuple[str, ...]] = ("engine",)

    passages: tuple[str, ...]
    """Texts of other questions, such as those that other runs of a store read; those of the run itself are left out.
    The same ones, in the same order, stand before every question, so that an engine reads them once for each number."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "passages", tuple(texts_of("RandomBaseline.passages", self.passages) or ()))

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        writer, target = ScoreWriter(view, self), target_of(view)
        steps = [step for step in view.steps if step.readable]
        if not steps or not target.references or not view.run.question.strip():
            return writer.results()
        fit = window(view)
        read = {step.step.id: fit([step]) for step in steps} | {"": fit(steps)}
        own = {passage.text for step in view.steps for passage in step.all}
        others = [text for text in dict.fromkeys(self.passages) if text.strip() and text not in own]
        random.Random(0).shuffle(others)
        contexts = {context.passages: context for context in read.values()}
        contexts |= {
            key: BeliefContext(key, tuple(reversed(range(len(key)))))
            for key in _firsts(others, read.values())
        }
        beliefs = await likelihoods(view, contexts, target.references, ask)
        by_id = {step.step.id: step for step in steps}
        for id, context in read.items():
            with writer.failing("delta_likelihood_random", by_id.get(id)):
                key = tuple(others[: len(context.passages)])
                if len(key) < len(context.passages):
                    raise ScoringError(
                        f"{len(context.passages)} random passages are needed and {len(key)} are given; give more"
                    )
                before, after = (
                    answered(beliefs[one]).estimates["per_token"].value for one in (key, context.passages)
                )
                writer.add(
                    "delta_likelihood_random",
                    after - before,
                    step=by_id.get(id),
                    explanation=f"{before:.2f} → {after:.2f}",
                    label="support" if target.source == "answer" else "",
                    reference_source=target.source,
                    references=target.given,
                    metadata={"random": len(key)},
                )
        return writer.results()


def _firsts(others: Sequence[str], contexts: Iterable[BeliefContext]) -> set[Key]:
    """Returns as many of the other passages as each context has, where there are so many."""
    sizes = {len(context.passages) for context in contexts}
    return {tuple(others[:size]) for size in sizes if size <= len(others)}
