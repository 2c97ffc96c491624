"""The records: passages, steps, runs, guards' decisions, advice, scores and failures.

The records are plain data that all of the package shares. This module reads and writes nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from ragguard.runtime.per_process import PerProcess

Level = Literal["passage", "step", "run"]
Status = Literal["open", "ok", "error", "cancelled", "interrupted", "abandoned"]
ReferenceSource = Literal["gold", "answer", "none"]
Stage = Literal["passages", "candidates"]
GuardStatus = Literal["pruned", "kept_all", "shadow", "unfit", "timeout", "error"]
AdviceAction = Literal["answer", "continue", "rephrase", "distrust"]
AdviceStatus = Literal["judged", "timeout", "error"]
T = TypeVar("T")

CONTENT_KIND = "ragguard.content"
"""Metadata key of a passage without text: what it is instead, such as `image`. Such a passage is not judged."""
CUT_PASSAGES = "ragguard.cut_passages"
"""Metadata key of the last passage of a retrieval that gave more than are captured: how many were, in words."""
SPLIT_ERROR = "ragguard.split_error"
"""Metadata key of a step whose splitter failed: the error. Its one passage is then the whole text."""
FEEDBACK = "feedback"
"""Metadata key of a run: what somebody said of it, as `{"thumb": "up" or "down", "note": "…"}`."""
ANNOTATIONS = "annotations"
"""Metadata key of a run that was read from a trace: what people said of it there, each with `name`, `label`, `score`,
`by` and `at`; never what a model or code said."""
MODEL_CALLS = "model_calls"
"""Metadata key of a run from a trace: its calls of models, each with the model and, if known, tokens, cost and time."""
K_ERROR = "ragguard.k_error"
"""Metadata key of a step whose `k=` cannot be right: what is wrong. No score that needs K is given for the step."""
GRADE_ERROR = "ragguard.grade_error"
"""Metadata key of a passage whose `grade=` is none: what is wrong. It is judged like a passage without a grade."""
PROVISIONAL = "provisional"
"""Metadata key of a score that was given while its run was open: True. The run's end replaces such a score."""
LEFT_OUT = "dropped_passages"
"""Metadata key of a score: how many passages were left out, as the model's context is too short for all of them."""
CUT_TOKENS = "cut_tokens"
"""Metadata key of a score: how many tokens of passages were cut off, as the model's context is too short."""


class FieldRule(Enum):
    """A fact about a field that its type does not say; it stands in the annotation, where `schema.py` reads it."""

    ID = "whole numbers are allowed as well, and become texts in files and stores"
    HEXADECIMAL = "a text of hexadecimal digits"
    NEEDED = "always in files, though the record has a default"
    DERIVED = "not in files, since it follows from where the record stands"
    QUOTING = "a reason or an error, which may quote the query or the passages"
    OWN_WORDS = "words of the package's own, which redaction leaves as they are"


Id: TypeAlias = Annotated[str, FieldRule.ID]


# Not uuid4: asking the system for each id lets other threads run first, which takes a hook up to milliseconds.
_digits = PerProcess(random.Random)


def new_id() -> str:
    """Returns a fresh identifier: 32 hexadecimal digits, unique across processes."""
    return f"{_digits.get().getrandbits(128):032x}"


@dataclass(slots=True)
class Passage:
    """A text that a retriever returned."""

    text: str
    id: Id = ""
    score: float | None = None
    """The retriever's own score, in the retriever's own unit."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    grade: Annotated[int, range(1, 6)] | None = None
    """A given relevance grade, 1 to 5; if it is missing, scorers ask a judge."""


def _several(given: Any, kind: type = str) -> Any:
    """Returns the values of a field; one value in place of a list becomes a list of one."""
    return [given] if isinstance(given, kind) else given


def _passages(given: Any) -> Any:
    return _several(Passage(given) if isinstance(given, str) else given, Passage)


@dataclass(slots=True)
class Dropped:
    """A passage that a guard dropped, with the reason and the numbers behind it."""

    passage: Passage
    position: int
    """The rank among the candidates, from 1; 0 for a passage that was added after the retrieval."""
    reason: Annotated[str, FieldRule.QUOTING]
    utility: float | None = None
    p_abstain: float | None = None
    p_relevant: float | None = None


@dataclass(slots=True)
class Decision:
    """The decision of a guard about one list of passages, in their order."""

    kept: list[Passage]
    dropped: list[Dropped] = field(default_factory=list)
    status: GuardStatus = "kept_all"
    elapsed_ms: float = 0.0
    reason: Annotated[str, FieldRule.QUOTING] = ""
    """The reason for the decision: the policy's name, the error, or the budget that ran out."""
    engine: str = ""
    started_ns: int = 0
    """The time at which the guard began, on the wall clock; 0 if that was not measured."""
    would_drop: list[Dropped] = field(default_factory=list)
    """The passages that a guard in shadow (status `shadow`) would have dropped; the model gets them nevertheless."""

    def of(self, given: Sequence[T]) -> list[T]:
        """Returns the objects that stay, of those that the guard was given, such as documents of a framework: the same
        objects, in their order."""
        gone = {drop.position for drop in self.dropped}
        return [one for position, one in enumerate(given, 1) if position not in gone]


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of an answer. Usages can be added."""

    requests: int = 0
    prompts: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    cached: int = 0
    """How many of the prompts were answered from a cache."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.requests + other.requests,
            self.prompts + other.prompts,
            self.prompt_tokens + other.prompt_tokens,
            self.output_tokens + other.output_tokens,
            seconds=self.seconds + other.seconds,
            cached=self.cached + other.cached,
        )


@dataclass(slots=True)
class Advice:
    """Advice after a step: answer with what was read, or search on, and why."""

    action: AdviceAction
    """`answer`: what was read suffices. `continue`: search on. `rephrase`: the last step brought nothing for its query.
    `distrust`: passages contradict each other or mislead."""
    open_sub_questions: list[str] = field(default_factory=list)
    """The sub-questions that no passage answers so far."""
    expected_gain: float | None = None
    """The expected rise of the coverage by one more step; None if nothing could be judged."""
    stderr: float | None = None
    """The standard error of the expected gain."""
    reasons: list[str] = field(default_factory=list)
    """The reasons in words, the deciding one first. Without a judgement: the error, or the time that ran out."""
    calibrated: bool = False
    """True if the rule for `answer` keeps a promise that was calibrated with these models."""
    elapsed_ms: float = 0.0
    status: AdviceStatus = "judged"
    """`timeout` and `error`: nothing could be judged, and the action is `continue`."""
    numbers: Annotated[Mapping[str, float], FieldRule.OWN_WORDS] = field(default_factory=dict)
    """The numbers behind the advice by name: `sufficiency`, the `threshold` from which the action is `answer`, and
    the parts of the sufficiency."""
    usage: Usage = field(default_factory=Usage)
    """The cost of asking; `cached` are the prompts that live scoring or earlier advice had asked."""
    step_id: Id = ""
    """The id of the step after which the advice was given."""
    engine: str = ""
    """The fingerprint of the model that reads."""
    started_ns: int = 0
    """The time at which the advice was asked for, on the wall clock, in nanoseconds."""


@dataclass(slots=True)
class TraceContext:
    """The place of a step in an OpenTelemetry trace: immutable ids, never a live span."""

    trace_id: Annotated[str, FieldRule.HEXADECIMAL]
    span_id: Annotated[str, FieldRule.HEXADECIMAL]
    sampled: bool = True
    foreign: bool = False
    """True if `span_id` is a retrieval span that another instrumentation made for this step."""


@dataclass(slots=True)
class SubStep:
    """An inner retrieval of a step, such as one retriever of an ensemble, or one rewritten query."""

    query: str
    passages: list[Passage] = field(default_factory=list)
    name: str = ""
    started_ns: int = 0
    ended_ns: int = 0
    status: Status = "ok"


@dataclass(slots=True)
class LeadSource:
    """A passage of an earlier step from which a query took words."""

    step_id: Id
    position: int
    """The passage's rank in its step, from 1, as in `Score.position`."""
    passage_id: Id = ""


@dataclass(slots=True)
class Lead:
    """Words of a step's query that are in a passage which the model got before, and that neither the question nor an
    earlier query had."""

    words: str
    """The words as the query has them."""
    sources: list[LeadSource] = field(default_factory=list)
    """The passages that have the words, the likeliest first; several are equally likely as far as words show."""

    @property
    def steps(self) -> list[str]:
        """The ids of the steps that the passages belong to, each once. If there are several, any may have led to it."""
        return list(dict.fromkeys(source.step_id for source in self.sources))


def places_of(k: int | None, passages: int, candidates: int, *, kept: int, dropped: int) -> int:
    """Returns K of a step from its `k` and from how many passages there are; `kept` and `dropped` by a guard."""
    if k is not None:
        return k
    # Where the model got fewer than the guard kept, something else chose behind the guard.
    return (passages + dropped if passages >= kept else passages) or candidates


@dataclass(slots=True)
class RetrievalStep:
    """One retrieval (a hop): the outermost retriever call, or a call of a tool that retrieves."""

    id: Id = field(default_factory=new_id)
    run_id: Annotated[Id, FieldRule.DERIVED] = ""
    index: Annotated[int, FieldRule.DERIVED] = 0
    """The 0-based position in the run."""
    turn: Annotated[int, FieldRule.NEEDED] = 0
    """The number of the turn; steps of one turn ran in parallel."""
    query: str = ""
    passages: Annotated[list[Passage], FieldRule.NEEDED] = field(default_factory=list)
    """The passages that the model got."""
    candidates: list[Passage] = field(default_factory=list)
    """The passages that were retrieved, before a guard, a reranker or a cut; the same as `passages` without these."""
    started_ns: int = 0
    ended_ns: int = 0
    status: Status = "ok"
    tool: str = ""
    sub_steps: list[SubStep] = field(default_factory=list)
    error: Annotated[str, FieldRule.QUOTING] = ""
    decision: Decision | None = None
    trace: TraceContext | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    k: int | None = None
    """How many passages the prompt has places for, as a retriever was asked or a reranker chose; None: not known."""
    advice: Advice | None = None
    """The latest advice that was given after the step."""
    led_by: list[Lead] | None = field(default=None, compare=False)
    """The words that the query took from earlier passages, by `ragguard.facts.leads.with_leads`; None: not known."""

    def __post_init__(self) -> None:
        """Replaces a single passage or text by a list of one: a text is a sequence and would be split up."""
        self.passages, self.candidates = _passages(self.passages), _passages(self.candidates)

    @property
    def retrieved(self) -> list[Passage]:
        """All passages that were retrieved: the candidates, or the passages of a step that names no candidates."""
        return self.candidates or self.passages

    @property
    def places(self) -> int:
        """The number of places in the prompt, K: `k`, or the passages before a guard dropped some, as a reranker or a
        cut chose them, or the candidates. 0 if `k` cannot be right, or nothing was retrieved and `k` is None."""
        if K_ERROR in self.metadata:
            return 0
        decision = self.decision
        kept, dropped = (0, 0) if decision is None else (len(decision.kept), len(decision.dropped))
        return places_of(self.k, len(self.passages), len(self.candidates), kept=kept, dropped=dropped)


@dataclass(slots=True)
class Run:
    """One invocation of the pipeline: its question, steps, answer and references."""

    id: Id = field(default_factory=new_id)
    question: Annotated[str, FieldRule.NEEDED] = ""
    references: list[str] | None = None
    """Answers known to be right; None if there are none."""
    answer: str | None = None
    steps: Annotated[list[RetrievalStep], FieldRule.NEEDED] = field(default_factory=list)
    status: Status = "ok"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    sub_questions: list[str] | None = None
    pool: list[Passage] | None = None
    """All graded passages of the question, if they are known."""
    name: str = ""
    started_ns: int = field(default_factory=time.time_ns)
    ended_ns: int = 0
    trace: TraceContext | None = None
    cause: Annotated[str, FieldRule.DERIVED, FieldRule.OWN_WORDS] = field(default="", compare=False)
    """The cause of the answer, such as `right`, `not_found` or `misled`, by the run's scores: a word of
    `ragguard.facts.causes.CAUSES`. Empty for a run that was not scored."""

    def __post_init__(self) -> None:
        """Replaces a single reference, sub-question, passage or step by a list of one: a text would be split up."""
        self.references, self.sub_questions = _several(self.references), _several(self.sub_questions)
        self.pool, self.steps = _passages(self.pool), _several(self.steps, RetrievalStep)


@dataclass(slots=True)
class Score:
    """A named number about a passage, a step or a run. Never NaN: an undefined value is no score."""

    name: str
    value: float
    level: Level
    run_id: Id
    step_id: Id = ""
    passage_id: Id = ""
    position: int | None = None
    """The 1-based rank of the passage among the step's candidates."""
    stderr: float | None = None
    label: str = ""
    explanation: str = ""
    reference_source: ReferenceSource = "none"
    engine: str = ""
    """The fingerprint of the model that gave the score."""
    prompts: str = ""
    """The name and version of the prompt set, such as `default/1`."""
    usage: Usage = field(default_factory=Usage)
    scorer: str = ""
    version: str = ""
    """The scorer's version and a digest of its settings."""
    references_hash: str = ""
    sub_question: int | None = None
    """The 0-based index of the sub-question, for scores per sub-question."""
    expectation: float | None = None
    """The mean over the labels, where `value` is the most probable one."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    stage: Stage = "passages"
    """The passages that the score is about: those that the model got, or those before a guard or a cut."""

    @property
    def key(self) -> tuple[str | int, ...]:
        """Identifies the score: the store keeps one score of each key."""
        return (
            self.run_id, self.step_id, self.name, self.stage, self.position or 0,
            -1 if self.sub_question is None else self.sub_question,
            self.scorer, self.version, self.engine, self.prompts, self.references_hash,
        )  # fmt: skip

    @property
    def provisional(self) -> bool:
        """True for a score that was given while its run was open; it may change as more becomes known."""
        return self.metadata.get(PROVISIONAL) is True


@dataclass(slots=True)
class Failure:
    """A score that could not be computed, and why. It is stored and sent like a score."""

    scorer: str
    error: str
    """The error's type, such as `EngineUnreachable` or `CapExceeded`."""
    message: str
    will_retry: bool = False
    run_id: Id = ""
    step_id: Id = ""
    attempts: int = 1
    occurred_ns: int = field(default_factory=time.time_ns)


@dataclass(slots=True)
class ScoredRun:
    """A run with the scores and failures of one attempt at scoring it."""

    run: Run
    scores: Sequence[Score] = field(default_factory=list)
    failures: Sequence[Failure] = field(default_factory=list)
    started_ns: int = 0
    """The time at which scoring began and that at which it ended, on the wall clock; 0 where it was not measured."""
    ended_ns: int = 0


Result = Score | Failure
