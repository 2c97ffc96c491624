"""Collects what is known of a scored run and its hops for the explanation in words: texts, utilities, gains of belief.

This file says nothing in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragguard.records import Run, Score
from ragguard.scorers.view import numbered, view_step

CLEAR = 0.2
"""The least size of a utility that is called help or harm."""
ANSWERS = 3
"""The least rating, from 0 to 5, with which a passage is said to answer a sub-question."""
READ = frozenset(
    ("utility", "answerability", "delta_seper", "delta_seper_alone", "answer_correct", "seper_closed_book")
)
"""The scores that explanations read."""
_ERRORS = 2
"""How many standard errors a difference must exceed to count as one."""


@dataclass(frozen=True, slots=True)
class BeliefGain:
    """A difference of belief with its standard error; None where the error is not known."""

    value: float
    stderr: float | None

    @property
    def significant(self) -> bool:
        """True where the difference exceeds two standard errors and does not round to zero."""
        return abs(self.value) >= 0.005 and is_clear(self.value, self.stderr)

    def __str__(self) -> str:
        error = "" if self.stderr is None else f" ± {self.stderr:.2f}"
        return f"{self.value:+z.2f}{error}"


def is_clear(value: float, stderr: float | None) -> bool:
    """Returns whether a value is at least two standard errors away from zero."""
    return abs(value) >= _ERRORS * (stderr or 0.0)


class Number(NamedTuple):
    """The part of a score that explanations use."""

    step: object
    """The key of its step; empty for a score of the run."""
    rank: int | None
    name: str
    value: float
    stderr: float | None = None
    label: str = ""
    source: str = ""
    """The origin of its reference: gold, the run's own answer, or nowhere."""
    sub_question: int | None = None


@dataclass(slots=True)
class HopFacts:
    """The passages of one hop by rank, and its gains of belief."""

    number: int
    turn: int
    query: str
    texts: Sequence[str]
    """The passages in the order of their ranks, those that the model did not get included."""
    read: frozenset[int]
    """The ranks, from 1, of the passages that the model got."""
    dropped: frozenset[int] = frozenset()
    """The ranks of the passages that a guard dropped."""
    texts_known: bool = True
    """False where a passage has no text, as an image, or as in a folder of scored parts."""
    utilities: dict[int, float] = field(default_factory=dict)
    """The utilities by rank; 0 where one is within two standard errors of zero."""
    gain: BeliefGain | None = None
    """The change of belief by this hop after the earlier ones."""
    alone: BeliefGain | None = None
    """The change of belief by this hop without the earlier ones."""

    @property
    def answers_its_query(self) -> bool | None:
        """True where a passage that was read was judged to answer the query; None where not all were judged."""
        if any(self.utilities.get(rank, 0.0) > CLEAR for rank in self.read):
            return True
        return False if self.read <= self.utilities.keys() else None


@dataclass(slots=True)
class RunFacts:
    """The question, answer and hops of a run, and what was judged of them."""

    question: str
    answer: str
    references: Sequence[str]
    hops: Sequence[HopFacts]
    sub_questions: Sequence[str] = ()
    """The given sub-questions."""
    verdict: str = ""
    """The label of `answer_correct`; empty where the answer was not judged."""
    before: float | None = None
    """The belief in the reference before any retrieval."""
    support: bool = False
    """True where beliefs are in the run's own answer, for want of references."""
    unanswered: Sequence[str] = ()
    """The given sub-questions that no passage which was read answers."""


def facts_of(run: Run, scores: Iterable[Score]) -> RunFacts:
    """Returns what is known of a run by its scores."""
    steps: dict[str, HopFacts] = {}
    turns = {step.id: turn for turn, step in numbered(run.steps)}
    for number, step in enumerate(run.steps, 1):
        seen = view_step(step, 0)
        steps[step.id] = HopFacts(
            number, turns[step.id], step.query or run.question, [passage.text for passage in seen.all],
            read=frozenset(at + 1 for at in seen.got),
            dropped=frozenset(drop.position for drop in step.decision.dropped) if step.decision else frozenset(),
            texts_known=not seen.textless,
        )  # fmt: skip
    rows = (
        Number(
            step=score.step_id, rank=score.position, name=score.name, value=score.value, stderr=score.stderr,
            label=score.label, source=score.reference_source, sub_question=score.sub_question,
        )
        for score in scores
        if score.stage == "passages" and score.name in READ
    )  # fmt: skip
    facts = RunFacts(
        question=run.question, answer=run.answer or "", references=run.references or (),
        hops=list(steps.values()), sub_questions=run.sub_questions or (),
    )  # fmt: skip
    return with_numbers(facts, steps, rows)


def with_numbers(facts: RunFacts, hops: Mapping[Any, HopFacts], numbers: Iterable[Number]) -> RunFacts:
    """Returns the facts with what scores say of the run, and of its hops by the keys of their steps."""
    answered: set[int] = set()
    rated: set[int] = set()
    latest: dict[tuple[object, str], Number] = {}
    for one in numbers:
        if one.rank is None:
            key = one.step or None, one.name
            if key not in latest or one.source == "gold" or latest[key].source != "gold":
                latest[key] = one
        elif (hop := hops.get(one.step)) is None:
            continue
        elif one.name == "utility":
            hop.utilities[one.rank] = one.value if is_clear(one.value, one.stderr) else 0.0
        elif one.name == "answerability" and one.sub_question is not None:
            rated.add(one.sub_question)
            if one.value >= ANSWERS and one.rank in hop.read:
                answered.add(one.sub_question)
    for step, hop in hops.items():
        hop.gain, hop.alone = (
            BeliefGain(found.value, found.stderr) if (found := latest.get((step, name))) else None
            for name in ("delta_seper", "delta_seper_alone")
        )
        facts.support = facts.support or getattr(latest.get((step, "delta_seper")), "source", "") == "answer"
    verdict, before = latest.get((None, "answer_correct")), latest.get((None, "seper_closed_book"))
    facts.verdict = "" if verdict is None else verdict.label
    facts.before = None if before is None else before.value
    facts.unanswered = [
        asked
        for number, asked in enumerate(facts.sub_questions)
        if number in rated and number not in answered
    ]
    return facts
