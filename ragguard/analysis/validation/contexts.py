"""The record that metrics are validated on: a context of a question, with the quality of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ragguard.records import Passage
from ragguard.scorers.answers import Verdict as Verdict

OUTCOMES: Mapping[Verdict, int] = {"correct": 2, "abstained": 1, "wrong": 0}
"""A graded answer as a number: to abstain is better than to be wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Passages that a model was given together, in the order it read them, and the quality of its answer.

    None stands for what the data set does not hold; an engine is asked for it where a metric needs it.
    """

    id: str
    question_id: str
    """Contexts of one question are compared with one another."""
    question: str
    passages: tuple[Passage, ...]
    references: tuple[str, ...] = ()
    relevance: tuple[float, ...] | None = None
    """Judged relevance of each passage, in the data set's own grades: 0 is irrelevant. () where the retrieval found
    nothing; None where there are no judgements, or no retrieval that ended well."""
    ideal: tuple[float, ...] | None = None
    """The grades of all judged passages of the question, where they are known: what a ranking could have had."""
    k: int | None = None
    """K, the number of places that there were in the prompt; None: as many as passages."""
    answer: str | None = None
    outcome: float | None = None
    """How good the answer was, in any unit; `OUTCOMES` where it was graded here."""
    sub_questions: tuple[str, ...] = ()
    given: Mapping[str, float] = field(default_factory=dict)
    """Numbers that the data set itself gives for the context, by name, such as another metric's."""

    @property
    def found_nothing(self) -> bool:
        """True where a retrieval ended well and brought no passage."""
        return not self.passages and self.relevance is not None

    @property
    def readable(self) -> bool:
        """True where an engine can score the context: a passage has a text, or there was nothing to read."""
        return self.found_nothing or any(passage.text.strip() for passage in self.passages)
