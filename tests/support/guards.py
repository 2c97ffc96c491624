"""A guard whose verdicts are known: for it, every second passage of a shelf is a distractor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from support.captured import ids
from support.scripted_engine import ScriptedEngine

from ragguard import DistractorGuard
from ragguard.guard import Judged
from ragguard.records import Decision, RetrievalStep


def judging(text: str, label: str) -> float | None:
    """A reader and judge for whom every second passage of a shelf is a distractor."""
    misleads = re.search(r"\w 1 about|\w 3 about", text) is not None
    return {"NO-RESPONSE": 0.1, "A": 0.1 if misleads else 0.9, "B": 0.9 if misleads else 0.1}.get(label)


def guarding(engine: ScriptedEngine | None = None, **settings: Any) -> DistractorGuard:
    """A guard that drops `name-1` and `name-3` of any shelf."""
    return DistractorGuard(engine or ScriptedEngine(label=judging), **{"budget_ms": 60_000, **settings})


class NoCopies:
    """A policy of a user's own, which needs no model: drops passages that came before."""

    needs_utility = False

    def drop(self, judged: Sequence[Judged]) -> dict[int, str]:
        first: dict[str, int] = {}
        ranks = {item.position: first.setdefault(item.passage.text, item.position) for item in judged}
        return {at: f"a copy of passage {rank}" for at, rank in ranks.items() if rank != at}


HELPS, MISLEADS, IDLE = "Ada Berg founded it in Oslo.", "Carl Dahl founded it in Rome.", "Lemons are yellow."


def says(text: str, label: str) -> float | None:
    """A reader and judge that knows three passages by heart: one helps, one misleads, one does nothing."""
    if label == "NO-RESPONSE":
        return 0.95 if IDLE in text else 0.05
    if label in ("A", "B"):
        return 0.9 if (label == "A") == (HELPS in text) else 0.1
    return None


def guard(engine: ScriptedEngine | None = None, **settings: Any) -> DistractorGuard:
    """A guard on that reader and judge, with a budget that no busy machine uses up."""
    return DistractorGuard(engine or ScriptedEngine(label=says), **{"budget_ms": 20_000, **settings})


def texts(decision: Decision) -> list[str]:
    """The texts of the passages that stay."""
    return [passage.text for passage in decision.kept]


def guarded_ids(
    step: RetrievalStep,
) -> tuple[list[str | None], list[str | None], list[tuple[int, str | None]]]:
    """The ids of what a step retrieved and of what the model got, and of what was dropped the rank and the id."""
    before = step.candidates if step.candidates is not None else step.passages
    return (
        ids(before),
        ids(step.passages),
        [(drop.position, drop.passage.id) for drop in step.decision.dropped],
    )


def assert_spans_tell(spans: Sequence[ReadableSpan], kept: int, dropped: Sequence[int]) -> None:
    """The guard's span stands under that of the retrieval, and says which passages were dropped and why."""
    (retrieval,) = (span for span in spans if span.name.startswith("retrieval"))
    (guard,) = (span for span in spans if span.name == "guard")
    assert guard.parent.span_id == retrieval.context.span_id
    told = dict(guard.attributes)
    assert told["openinference.span.kind"] == "GUARDRAIL"
    assert (told["ragguard.guard.status"], told["ragguard.guard.kept"], told["ragguard.guard.dropped"]) == (
        "pruned", kept, len(dropped),
    )  # fmt: skip
    assert told["ragguard.guard.dropped.positions"] == tuple(dropped)
    assert told["ragguard.guard.dropped.utility"] == pytest.approx((-0.72,) * len(dropped))
    assert all("utility -0.72" in reason for reason in told["ragguard.guard.dropped.reasons"])
