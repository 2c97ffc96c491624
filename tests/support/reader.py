"""A reader, a judge and an entailer of one small story, without a model: what they say is known beforehand.

The question is who founded the firm in Oslo. FIRM and FOUNDER together tell it; FALSE says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from support.scripted_engine import ScriptedEngine

from ragguard.engines.base import EngineInfo
from ragguard.engines.entailment import Entailments, Pair
from ragguard.records import Passage, Result, RetrievalStep, Run, Score, Usage
from ragguard.text.language import meaning_key

QUESTION = "Who founded the firm based in Oslo?"
FIRM_QUERY = "Which firm is based in Oslo?"
FOUNDER_QUERY = "Who founded Norvik Mills?"
FIRM = "Norvik Mills is based in Oslo."
FOUNDER = "Ada Berg founded Norvik Mills."
FALSE = "Bo Lund founded Norvik Mills."
NOISE = "Carla Ek works as a baker."
NEAR = "Velara Works is based in Bergen."

_DOCUMENT = re.compile(r"<document[^>]*>\n(.*?)\n</document>", re.DOTALL)
_ANSWERS = {
    # Of ten answers, so many are right, so many are the false one; the rest are guesses.
    frozenset(): (0, 0),
    frozenset({FIRM}): (2, 0),
    frozenset({FOUNDER}): (6, 0),
    frozenset({FIRM, FOUNDER}): (10, 0),
    frozenset({FALSE}): (0, 6),
    frozenset({FIRM, FALSE}): (0, 10),
    frozenset({FOUNDER, FALSE}): (5, 5),
    frozenset({FIRM, FOUNDER, FALSE}): (6, 4),
}
ABSTAINS = {
    (FIRM_QUERY, FIRM): 0.1, (FOUNDER_QUERY, FOUNDER): 0.05, (FOUNDER_QUERY, FALSE): 0.1,
    (FIRM_QUERY, NEAR): 0.6,
}  # fmt: skip
RELEVANT = {
    (FIRM_QUERY, FIRM): 0.9, (FOUNDER_QUERY, FOUNDER): 0.96, (FOUNDER_QUERY, FALSE): 0.3,
    (FIRM_QUERY, NEAR): 0.2, (QUESTION, FOUNDER): 0.9,
}  # fmt: skip
ANSWERS_SUB = {
    (FIRM_QUERY, FIRM): 5, (FOUNDER_QUERY, FOUNDER): 5, (FIRM_QUERY, NEAR): 1, (FOUNDER_QUERY, "Ada Berg"): 4,
}  # fmt: skip


def documents(text: str) -> list[str]:
    """The passages inside a prompt."""
    return _DOCUMENT.findall(text)


def asked(text: str) -> str:
    """The question or query inside a prompt."""
    found = re.search(r"<(?:question|query)>\n(.*?)\n</", text, re.DOTALL)
    return found[1] if found else ""


def say(text: str, index: int) -> str:
    """Returns what the reader answers the `index`-th time."""
    if "sub-questions" in text:
        return f"1. {FIRM_QUERY}\n- {FOUNDER_QUERY}\n"
    if "at most ten words" in text:
        return "Ada Berg"
    right, false = _ANSWERS[frozenset(documents(text)) & {FIRM, FOUNDER, FALSE}]
    if index < right:
        return "Ada Berg" if index % 2 else "Ada Berg."
    if index < right + false:
        return "Bo Lund"
    return f"Guess {index}"


def weigh(text: str, label: str) -> float:
    """Returns how probable the judge's next word is a label."""
    passage = (documents(text) or [""])[0]
    key = (asked(text), passage)
    if label == "NO-RESPONSE":
        return ABSTAINS.get(key, 0.95)
    if label in "ABC":
        p = RELEVANT.get(key, 0.04)
        return p if label == "A" else 1 - p if label == "B" else 0.0
    if "from 0 to 5" in text:
        best = ANSWERS_SUB.get(key, 0)
    elif "the best matching reference" in text:
        best = 5 if "Ada Berg" in text.split("<answer>")[1] else 2
    else:
        best = 5 if RELEVANT.get(key, 0.0) > 0.5 else 2 if key in ABSTAINS else 1
    return 0.8 if int(label) == best else 0.2 / 5 if "from 0 to 5" in text else 0.2 / 4


def reader(**more: object) -> ScriptedEngine:
    """The engine that reads and judges this story."""
    return ScriptedEngine(label=weigh, answer=say, **more)  # type: ignore[arg-type]


@dataclass
class TableEntailer:
    """Says that answers follow from each other if they are aliases, and contradict each other if not."""

    aliases: Sequence[frozenset[str]] = ()
    model: str = "table"
    mass: float = 1.0
    pairs: list[Pair] = field(default_factory=list)
    calls: int = 0
    closed: int = 0
    fault: BaseException | None = None

    async def entail(
        self, pairs: Sequence[Pair], *, deadline: float | None = None, priority: int = 0
    ) -> Entailments:
        self.calls += 1
        self.pairs += pairs
        if self.fault is not None:
            raise self.fault
        p = np.array([self.relation(pair.premise, pair.hypothesis) for pair in pairs])
        return Entailments(p, Usage(1, len(pairs), 10 * len(pairs), 0, 0.001), np.full(len(pairs), self.mass))

    def relation(self, one: str, other: str) -> tuple[float, float, float]:
        one, other = meaning_key(one), meaning_key(other)
        alike = one == other or any({one, other} <= group for group in self.aliases)
        return (0.9, 0.08, 0.02) if alike else (0.03, 0.07, 0.9)

    async def info(self) -> EngineInfo:
        return EngineInfo(self.model, "table", self.model)

    async def aclose(self) -> None:
        self.closed += 1


def step(
    query: str, passages: Iterable[str], candidates: Iterable[str] | None = None, **more: object
) -> RetrievalStep:
    """A step whose passages are texts."""
    got = [Passage(text, id=text[:8]) for text in passages]
    found = got if candidates is None else [Passage(text, id=text[:8]) for text in candidates]
    return RetrievalStep(query=query, passages=got, candidates=list(found), **more)  # type: ignore[arg-type]


def run(*steps: RetrievalStep, answer: str | None = "Ada Berg", references: Sequence[str] | None = ("Ada Berg",),
        turns: Sequence[int] | None = None, **more: object) -> Run:  # fmt: skip
    """A run over the story's question, its steps numbered."""
    for index, one in enumerate(steps):
        one.index, one.turn = index, index if turns is None else turns[index]
    given = None if references is None else list(references)
    return Run(question=QUESTION, references=given, answer=answer, steps=list(steps), **more)  # type: ignore[arg-type]


def two_hops(**more: object) -> Run:
    """The run that goes well, with a distractor in each hop."""
    return run(step(FIRM_QUERY, [FIRM, NEAR]), step(FOUNDER_QUERY, [NOISE, FOUNDER]), **more)  # type: ignore[arg-type]


def named(results: Iterable[Result], name: str, stage: str | None = "passages") -> list[Score]:
    """The scores of that name, of one stage or (None) of all."""
    scores = (one for one in results if isinstance(one, Score) and one.name == name)
    return [score for score in scores if stage in (None, score.stage)]


def values(results: Iterable[Result], name: str, stage: str | None = "passages") -> list[object]:
    """Returns the values of scores by name, for a comparison that allows for rounding."""
    return [pytest.approx(score.value) for score in named(results, name, stage)]
