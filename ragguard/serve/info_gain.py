"""The information gain of contexts, in the form in which InfoReasoner's trainers ask for it: SePer with a context less
SePer without."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ragguard.client import RagGuard
from ragguard.engines.base import Engine
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.runtime.arguments import references_of
from ragguard.runtime.faults import describe

_NEEDED = 'needed: {"question": "...", "context": "...", "answers": ["..."]}'


@dataclass
class InfoGainItem:
    """A question with its right answers, and a context that may add to the belief in them."""

    question: str = ""
    context: str = ""
    answers: list[str] = field(default_factory=list)


class InfoGain:
    """Scores items with the belief scorer alone, without storing them."""

    def __init__(self, engine: Engine, judge: Engine | str | None = None) -> None:
        self._rg = RagGuard(engine, judge=judge, scorers=("belief",), store=None, retention=1.0)

    async def of(self, items: Sequence[InfoGainItem]) -> dict[str, list[Any]]:
        """Returns `scores`, `errors` and `details`, one entry an item, in their order; an item that failed has the
        score 0 and its error."""
        results = await asyncio.gather(*map(self._one, items))
        scores, errors, details = zip(*results, strict=True) if results else ((), (), ())
        return {"scores": list(scores), "errors": list(errors), "details": list(details)}

    async def _one(self, item: InfoGainItem) -> tuple[float, str | None, dict[str, float] | None]:
        references = references_of(item.answers)
        given = {"question": item.question, "context": item.context, "answers": references}
        if missing := [name for name, value in given.items() if not value]:
            return 0.0, f"{', '.join(missing)}: empty; {_NEEDED}", None
        passages = [Passage(item.context)]
        step = RetrievalStep(query=item.question, passages=passages, candidates=passages)
        try:
            scores = await self._rg.score(Run(question=item.question, references=references, steps=[step]))
        except Exception as error:  # noqa: BLE001 - one item's error is not another's
            return 0.0, describe(error), None
        found = {
            one.name: one.value for one in scores if one.name in ("seper_closed_book", "seper", "delta_seper")
        }
        if "delta_seper" not in found:
            return (
                0.0,
                "; ".join(f"{one.error}: {one.message}" for one in scores.failures) or "no score",
                None,
            )
        return found["delta_seper"], None, found

    async def aclose(self) -> None:
        """Closes the scorer."""
        await self._rg.aclose(timeout=1.0)
