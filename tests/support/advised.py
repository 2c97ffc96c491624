"""A case of nano's world that an agent searches hop by hop, and engines that trouble its advice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from support.scripted_engine import ScriptedEngine

from ragguard import Passage, RagGuard, Run, world
from ragguard.errors import EngineUnreachable

CASE = world.cases(4, hops=2)[3]
PLAN = (*CASE.sub_questions, CASE.question) * 2
ANSWER = "Ada Berg"
PATIENT = 120_000
"""Milliseconds for advice, so that a busy machine changes nothing."""
TROUBLES = ("down", "slow", "spent")


def finds(query: str) -> list[Passage]:
    """Gives the passage that answers a sub-question, and one that does not."""
    gold = [one for asked, one in zip(CASE.sub_questions, CASE.gold, strict=True) if asked in query]
    return [*gold, CASE.distractors[0]]


@contextmanager
def troubled(trouble: str) -> Iterator[tuple[RagGuard, int]]:
    """A RagGuard whose engine is down, slow, or out of budget, and the milliseconds in which advice fails for that."""
    engine = ScriptedEngine(
        fault=lambda call: EngineUnreachable("it is gone") if trouble == "down" else None,
        gate=asyncio.Event() if trouble == "slow" else None,
    )
    budget = {"requests": 1} if trouble == "spent" else None
    with RagGuard(engine, store=None, scorers=(), budget=budget) as rg:
        yield rg, 50 if trouble == "slow" else 5000


def check_stopped(run: Run, heard: Sequence[tuple[list[str], str]]) -> None:
    """Asserts that an agent answered after the two searches that suffice, and what its model heard at each turn: the
    names of the tools, and the system message."""
    assert [step.query for step in run.steps] == CASE.sub_questions
    assert [step.advice and step.advice.action for step in run.steps] == ["continue", "answer"]
    assert [tools for tools, _ in heard] == [["search"], ["search"], []]
    first, second, last = (system for _, system in heard)
    assert first == ""
    assert second.startswith("Not answered yet by what was retrieved:\n- ")
    assert "answers the question" in last
