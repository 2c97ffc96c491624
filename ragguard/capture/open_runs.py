"""The runs that have begun and not ended, within bounds: least recently touched first.

Only the recorder and its emitter change them, and both hold `OpenRuns.lock` while they do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

from ragguard.capture.events import (
    UNNAMED,
    OneStepRun,
    RunEnded,
    RunNames,
    StepAmended,
    StepEnded,
    TurnKey,
    Turns,
)
from ragguard.capture.model_calls import DELIVERED, UNKNOWN, ModelCalls
from ragguard.capture.snapshot import OwnPassages, passages_of
from ragguard.errors import InvalidInput
from ragguard.records import (
    K_ERROR,
    SPLIT_ERROR,
    Decision,
    Passage,
    RetrievalStep,
    Run,
    Status,
    SubStep,
    TraceContext,
)
from ragguard.runtime.faults import NOTICES, describe
from ragguard.schema import checked_k

Unpack: TypeAlias = Callable[[Any], Iterable[str | Passage]]
"""A function that makes passages from what a hook was given; called when the step is first read, never in a hook."""
Collected: TypeAlias = list[StepEnded | StepAmended]
"""The events of the steps of a run that `rg.run(...)` holds."""
About: TypeAlias = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
"""Metadata, or a function that gives them when they are first read."""

ANSWERS = "ragguard.answers"
"""Metadata key of a run inside `with rg.run(...)` that got more than one answer: how many."""
_SEVERAL_ANSWERS = "got more than one answer; the last one counts, unless run.answered(...) names the answer"
_TWICE = (
    "the id {!r} was given to a run while another run of that id is open: each is a run of its own, and this one is "
    "{!r}. Keep a name that several runs share in metadata=, or say that this one goes on with the other "
    "(rg.run(resume=ID); `ragguard_resume` in a framework's metadata or tags)"
)
TOUCH_SECONDS = 1.0
"""The seconds after a touch within which a run keeps its position among the open ones."""
ENDED_KEPT = 1024
"""The number of ended steps of an open run that are remembered, so that they can be amended."""


@dataclass(slots=True, eq=False)
class Retrieval:
    """A retrieval that has begun."""

    id: str
    """The id of the step."""
    run: OpenRun
    query: str
    started_ns: int
    tool: str = ""
    name: str = ""
    metadata: Mapping[str, Any] | None = None
    trace: TraceContext | None = None
    outer: Retrieval | None = None
    """The retrieval that this one is a part of."""
    index: int = 0
    turn: int = 0
    key: TurnKey = ()
    """The parallel branches that the retrieval is in."""
    ended_ns: int = 0
    status: Status = "open"
    error: str = ""
    found: Any = ()
    """The result, as `unpack` takes it; passages where there is no `unpack`."""
    unpack: Unpack | None = None
    candidates: list[Passage] | None = None
    decision: Decision | None = None
    k: object = None
    """The number of passages for which there is a place, as the application says; checked when the step is read."""
    top_k: int | None = None
    """The number of passages that the retriever was asked for, where the framework tells."""
    parts: list[Retrieval] | None = None
    """Parts that have ended, in the order of their ends."""
    bodies: Callable[[], Sequence[str]] | None = None
    """Returns the texts of the candidates without what stands before them there, which a prompt may hold alone."""
    followed: bool = False
    """True where the framework reports the model calls of the run, by which it is known what of it was read."""

    def as_step(self) -> RetrievalStep:
        """Returns the record of a retrieval that has ended; what was retrieved is what the model got, until amended."""
        passages, metadata = unpacked(self.found, self.unpack, self.metadata or {}, self.tool or self.name)
        parts = sorted(self.parts or (), key=lambda part: part.started_ns)
        k: int | None = None
        if self.k is None:
            k = self._asked_for(len(passages))
        else:
            try:
                k = checked_k("k", self.k, len(passages))
            except InvalidInput as error:
                metadata = {**metadata, K_ERROR: str(error)}
        return RetrievalStep(
            self.id, self.run.id, self.index, self.turn, query=self.query, passages=passages,
            candidates=self._candidates(passages, parts), started_ns=self.started_ns,
            ended_ns=self.ended_ns, status=self.status, tool=self.tool,
            sub_steps=[part._as_part() for part in parts], error=self.error, decision=self.decision,
            trace=self.trace, metadata=metadata, k=k,
        )  # fmt: skip

    def _asked_for(self, delivered: int) -> int | None:
        """Returns the `top_k` of this retriever, or the largest of its parts where all that they found went on to the
        guard or the model; None where the retriever gave more passages than its `top_k`."""
        # A value that is no decision is refused later, with the reason.
        dropped = self.decision.dropped if isinstance(self.decision, Decision) else ()
        before = delivered + len(dropped)
        top_k, parts = self.top_k, self.parts or ()
        if top_k is None and parts and len(_found_in(parts)) == before:
            asked = [part.top_k for part in parts]
            top_k = None if None in asked else max(filter(None, asked))
        return top_k if top_k is not None and top_k >= max(before, 1) else None

    def _candidates(self, passages: list[Passage], parts: Sequence[Retrieval]) -> list[Passage]:
        """Returns the passages that were retrieved: those of the step's parts where the step returned fewer of them,
        as after a reranker or a cut."""
        if self.candidates is not None:
            return self.candidates
        found = _found_in(parts)
        got = {(passage.id, passage.text) for passage in passages}
        return passages if found.keys() <= got else list(found.values())

    def _as_part(self) -> SubStep:
        passages, _ = unpacked(self.found, self.unpack, {})
        return SubStep(
            self.query, passages, self.name, self.started_ns, ended_ns=self.ended_ns, status=self.status
        )


def _found_in(parts: Sequence[Retrieval]) -> dict[tuple[str, str], Passage]:
    """Returns what the parts of a retrieval found, each passage once."""
    return {
        (passage.id, passage.text): passage
        for part in parts
        if part.status == "ok"
        for passage in unpacked(part.found, part.unpack, {})[0]
    }


@dataclass(slots=True, eq=False)
class WholeRun:
    """A run that is one retrieval: made by the hook of its start, completed and handed on by the hook of its end."""

    id: str | UUID
    """A framework's own id becomes a text when it is read."""
    query: str
    name: str = ""
    metadata: About | None = None
    started_ns: int = 0
    ended_ns: int = 0
    """0 while the retrieval is open."""
    found: Any = ()
    """The retriever's result, as `unpack` takes it; passages where there is no `unpack`."""
    unpack: Unpack | None = None
    trace: TraceContext | None = None
    top_k: int | None = None
    """The number of passages that the retriever was asked for."""

    def as_event(self) -> OneStepRun:
        """Returns the event of this run; called on the writer's thread, since it unpacks the passages."""
        id = str(self.id)
        metadata = self.metadata() if callable(self.metadata) else self.metadata
        passages, about = unpacked(self.found, self.unpack, {"retriever": self.name} if self.name else {})
        k = self.top_k if self.top_k is not None and self.top_k >= max(len(passages), 1) else None
        run = Run(
            id, self.query, metadata=metadata or {}, name=self.name, started_ns=self.started_ns,
            ended_ns=self.ended_ns, trace=self.trace,
        )  # fmt: skip
        step = RetrievalStep(
            id, id, 0, 0, query=self.query, passages=passages, candidates=passages,
            started_ns=self.started_ns, ended_ns=self.ended_ns, status="ok", trace=self.trace,
            metadata={**about, DELIVERED: UNKNOWN} if passages else about, k=k,
        )  # fmt: skip
        return OneStepRun(run, step)


CUT_SHORT_KEPT = 65_536
"""The number of runs closed at the bound of open runs that are remembered until they end."""


@dataclass(slots=True, eq=False)
class OpenRun:
    """A run that has begun, with what a framework has reported about it and its end event will need."""

    id: str
    sampled: bool
    touched: float
    question: str = ""
    collected: Collected | None = None
    answer: str | None = None
    answered: bool = False
    """True where the application has given the answer itself."""
    answers: int = 0
    """The number of answers that frameworks have reported."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    index: int = 0
    turns: Turns = field(default_factory=Turns)
    steps: dict[str, Retrieval] = field(default_factory=dict)
    """Open retrievals and parts of retrievals, in the order of their starts."""
    ended: dict[str, None] = field(default_factory=dict)
    """The ids of the latest steps that have ended."""
    emitting: int = 0
    """Events on their way to the intake; the run's end waits for them."""
    final: RunEnded | None = None
    sub_questions: list[str] | None = None
    """The parts into which a framework took the question apart."""
    holds: int = 0
    """The number of streams that are read and handlers that are awaited in the run."""
    withheld: Callable[[], None] | None = None
    """Ends the run; set where the run was to end while it was held open."""
    names: RunNames = UNNAMED
    model_calls: ModelCalls = field(default_factory=ModelCalls)
    """The model calls of the run, by which it is known what of the retrieved passages was read."""

    def number(self, retrieval: Retrieval, turn: int | TurnKey) -> None:
        """Gives a step its position in the run and its turn."""
        retrieval.index = self.index
        self.index += 1
        if isinstance(turn, int):
            retrieval.turn = self.turns.given(turn)
        else:
            retrieval.key = turn
            overlapping = [(other.key, other.turn) for other in self.steps.values() if other.outer is None]
            retrieval.turn = self.turns.next(turn, overlapping)

    def note(
        self,
        question: str,
        answer: str | None,
        metadata: Mapping[str, Any] | None,
        sub_questions: list[str] | None,
    ) -> None:
        """Keeps what a framework reports about the run until the run ends; of several answers the last one counts."""
        self.question = self.question or question
        self.notes = {**self.notes, **(metadata or {})}
        if not self.answered:
            self.answer = self.answer if answer is None else answer
            self.answers += bool(answer)
            if answer and self.answers > 1:
                self.notes = {**self.notes, ANSWERS: self.answers}
                NOTICES.once("several answers in a run", f"run {self.id!r} {_SEVERAL_ANSWERS}. (Logged once)")
        self.sub_questions = self.sub_questions or sub_questions

    def note_ended(self, retrieval: Retrieval, event: StepEnded) -> None:
        """Remembers a step, so that it can be amended while the run is open."""
        self.ended[retrieval.id] = None
        if len(self.ended) > ENDED_KEPT:
            del self.ended[next(iter(self.ended))]
        if self.collected is not None:
            self.collected.append(event)
        if retrieval.status == "ok":
            self.model_calls.retrieved(retrieval.id, event, retrieval.bodies, followed=retrieval.followed)

    def has_open(self, turn: int) -> bool:
        """Returns whether a step of the turn is still open."""
        return any(retrieval.turn == turn and retrieval.outer is None for retrieval in self.steps.values())

    def left(self) -> list[Retrieval]:
        """Returns the open retrievals, parts before the retrievals that they are parts of."""
        return sorted(self.steps.values(), key=lambda retrieval: retrieval.outer is None)


class OpenRuns:
    """Open runs and open retrievals by their ids."""

    def __init__(self, limit: int, ttl: float) -> None:
        self._limit, self._ttl = limit, ttl
        self.lock = threading.RLock()
        """Held around every change. Reentrant: a garbage collection may run a hook inside a hook."""
        self.steps: dict[str, Retrieval] = {}
        """The open retrievals of all runs."""
        self._runs: dict[str, OpenRun] = {}
        self.names: dict[str, str] = {}
        """The id of the latest open run that the application calls so, by the id that it gave."""
        self._cut_short: dict[str, None] = {}
        """The latest runs that were closed since too many were open: the end of each is still recorded."""

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[OpenRun]:
        return iter(list(self._runs.values()))

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._runs

    def get(self, run_id: str) -> OpenRun | None:
        """Returns the open run of this id; None where no such run is open."""
        return self._runs.get(run_id)

    def add(self, run: OpenRun) -> None:
        """Adds a run; warns where another run that the application calls so is open."""
        self._runs[run.id] = run
        if name := run.names.caller_id:
            if name in self.names and run.sampled:
                NOTICES.warn("run id used twice", _TWICE.format(name, run.id), pause=1.0)
            self.names[name] = run.id

    def put(self, run: OpenRun) -> None:
        """Moves a run to the end of the order, where the most recently touched runs stand."""
        self._runs.pop(run.id, None)
        self._runs[run.id] = run

    def join(self, run_id: str, collect: Collected) -> Collected | None:
        """Returns the list to which an open run adds its steps' events, from its start; None without such a run."""
        with self.lock:
            run = self._runs.get(run_id)
            if run is None:
                return None
            if run.collected is None:
                run.collected = collect
            return run.collected

    def put_step(self, retrieval: Retrieval, turn: int | TurnKey, within: str, *, now: float) -> None:
        """Adds a retrieval that begins: as a numbered step, or as a part of the retrieval that encloses it."""
        run = retrieval.run
        with self.lock:
            if retrieval.id in self.steps or run.id not in self._runs:  # the run may have ended since
                return
            outer = self.steps.get(within)
            if outer is not None:
                retrieval.outer = outer.outer or outer
            else:
                run.number(retrieval, turn)
            self.steps[retrieval.id] = run.steps[retrieval.id] = retrieval
            if now - run.touched > TOUCH_SECONDS:
                run.touched = now
                self.put(run)

    def pop(self, run_id: str) -> OpenRun | None:
        """Removes a run and returns it; None where no such run is open."""
        run = self._runs.pop(run_id, None)
        if run is not None and self.names.get(run.names.caller_id) == run_id:
            del self.names[run.names.caller_id]
        return run

    def overdue(self, now: float) -> list[OpenRun]:
        """Returns the runs to close: those that are too old, and the oldest where there are too many."""
        surplus = len(self._runs) - self._limit
        found: list[OpenRun] = []
        for run in self._runs.values():
            if len(found) >= surplus and now - run.touched < self._ttl:
                break
            found.append(run)
        self._cut_short |= {run.id: None for run in found if run.sampled}
        while len(self._cut_short) > CUT_SHORT_KEPT:
            del self._cut_short[next(iter(self._cut_short))]
        return found

    def reopen(self, run_id: str, now: float) -> OpenRun | None:
        """Opens a run that was closed since too many were open, so that it can end with its answer; None for others."""
        with self.lock:
            if run_id not in self._cut_short:
                return None
            del self._cut_short[run_id]
            run = self._runs[run_id] = OpenRun(run_id, True, now, index=1)
            return run


def unpacked(
    found: Any, unpack: Unpack | None, metadata: Mapping[str, Any], name: str = ""
) -> tuple[list[Passage], Mapping[str, Any]]:
    """Returns the passages in what a hook was given, and the step's metadata, which name the error where the
    passages cannot be read."""
    if unpack is None:
        return list(found), metadata
    try:
        made = unpack(found)
        return passages_of(made if type(made) is OwnPassages else list(made)), metadata
    except Exception as error:  # noqa: BLE001 - a splitter is the user's code
        why = describe(error)
        NOTICES.warn(
            f"splitter of {name}",
            f"what {name!r} returned could not be taken apart, so it counts as one passage: {why}. Declare another "
            "splitter for it in tools={...}",
        )
        return passages_of(found), {**metadata, SPLIT_ERROR: why}
