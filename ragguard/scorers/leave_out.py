"""Measures what each passage that was read contributes to the belief: the belief after all passages, minus the belief
after all except this one.

Of few passages each is left out by itself. Many are left out by halves first: a half that changes next to nothing is
settled as a whole, any other is halved again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ragguard.errors import RagguardError
from ragguard.scorers.contexts import BeliefContext
from ragguard.scorers.estimates import change_between, likelihoods
from ragguard.scorers.question import Ask
from ragguard.scorers.view import View

SINGLY = 8
"""The most passages of which each is left out by itself at once."""
SMALL = 0.01
"""The change of the likelihood below which passages that were left out together are not told apart."""


class PassageLoss(NamedTuple):
    """The loss of belief in an answer without one passage, as likelihood and as its logarithm."""

    value: float
    log: float
    together: int = 1
    """How many passages were left out together; each then has an equal share."""

    @property
    def facts(self) -> dict[str, int]:
        """The number of passages that were left out together, as a score's metadata have it; empty for one."""
        return {"together": self.together} if self.together > 1 else {}


async def contributions(
    view: View, whole: BeliefContext, answers: Sequence[Sequence[str]], ask: Ask
) -> list[list[PassageLoss] | RagguardError]:
    """Returns, for each group of answers (the best of a group counts), the contribution of each passage of a context,
    or the error for which it is not known."""
    size = len(whole.passages)
    blocks = [range(at, at + 1) for at in range(size)]
    if size > SINGLY:
        blocks = [range(size // 2), range(size // 2, size)]
    contexts = {whole.passages: whole}
    found = [[PassageLoss(0.0, 0.0)] * size for _ in answers]
    errors: dict[int, RagguardError] = {}
    while blocks:
        without = {block: _without(whole, block) for block in blocks}
        contexts |= {context.passages: context for context in without.values()}
        known = await asyncio.gather(*(likelihoods(view, contexts, texts, ask) for texts in answers))
        left: list[range] = []
        for block, context in without.items():
            changes: dict[int, tuple[float, float]] = {}
            for group, beliefs in enumerate(known):
                try:
                    changes[group] = (
                        change_between(beliefs, context.passages, whole.passages, "per_token"),
                        change_between(beliefs, context.passages, whole.passages, "mean_logprob"),
                    )
                except RagguardError as error:
                    errors[group] = error
            if len(block) > 1 and any(abs(value) >= SMALL for value, _ in changes.values()):
                middle = (block.start + block.stop) // 2
                left += [range(block.start, middle), range(middle, block.stop)]
                continue
            for group, (value, log) in changes.items():
                share = PassageLoss(value / len(block), log / len(block), len(block))
                found[group][block.start : block.stop] = [share] * len(block)
        blocks = left
    return [errors.get(group) or each for group, each in enumerate(found)]


def _without(whole: BeliefContext, block: range) -> BeliefContext:
    """Returns the context without the passages of a block, in which the others give way in the same order."""
    kept = [at for at in range(len(whole.passages)) if at not in block]
    places: Mapping[int, int] = {at: place for place, at in enumerate(kept)}
    order = tuple(places[at] for at in whole.cut_order if at in places)
    return replace(whole, passages=tuple(whole.passages[at] for at in kept), cut_order=order)
