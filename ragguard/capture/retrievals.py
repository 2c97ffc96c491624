"""Retrievals as hooks keep them; steps are made of them later, when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

from ragguard.capture.call_paths import CallPath
from ragguard.capture.decisions import Verdict, joined_decision
from ragguard.capture.events import RunEnded, RunStarted, StepEnded, TurnKey
from ragguard.capture.model_calls import DELIVERED, UNKNOWN, Bodies
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


@dataclass(slots=True, eq=False)
class Retrieval:
    """A retrieval that has begun."""

    id: str
    """The id of the step."""
    run_id: str
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
    path: CallPath = ()
    ended_ns: int = 0
    status: Status = "open"
    error: str = ""
    result: Any = ()
    """The result, as `unpack` takes it; passages where there is no `unpack`."""
    unpack: Unpack | None = None
    candidates: list[Passage] | None = None
    decision: Decision | None = None
    verdicts: list[Verdict] | None = None
    """The verdicts of guards inside the retrieval."""
    k: object = None
    """The number of passages for which there is a place, as the application says; checked when the step is read."""
    top_k: int | None = None
    """The number of passages that the retriever was asked for, where the framework tells."""
    parts: list[Retrieval] | None = None
    """Parts that have ended, in the order of their ends."""
    bodies: Bodies | None = None
    """Returns what a prompt may hold alone of the candidates' texts."""
    followed: bool = False
    """True where the framework reports the model calls of the run, by which it is known what of it was read."""

    def as_step(self) -> RetrievalStep:
        """Returns the record of a retrieval that has ended; what was retrieved is what the model got, until amended."""
        passages, metadata = unpacked(self.result, self.unpack, self.metadata or {}, self.tool or self.name)
        parts = [part._as_part() for part in sorted(self.parts or (), key=lambda part: part.started_ns)]
        found = {(one.id, one.text): one for part in parts if part.status == "ok" for one in part.passages}
        candidates, decision = self.candidates, self.decision
        if self.verdicts and self.status == "ok":
            candidates, decision = joined_decision(self.verdicts, passages)
        # Where a step returned fewer than its parts, as after a reranker or a cut, theirs are the candidates, too. It
        # may have returned what none of them found: extracts, or the parents of chunks.
        returned = {(one.id, one.text) for one in passages}
        if candidates is None:
            new = [one for one in passages if (one.id, one.text) not in found]
            candidates = [*new, *found.values()] if found.keys() - returned else passages
        k: int | None = None
        if self.k is None:
            before = len(passages) + (0 if decision is None else len(decision.dropped))
            k = self._asked_for(before, len(found))
        else:
            try:
                k = checked_k(self.k, len(passages))
            except InvalidInput as error:
                metadata = {**metadata, K_ERROR: str(error)}
        return RetrievalStep(
            self.id, self.run_id, self.index, self.turn, query=self.query, passages=passages,
            candidates=candidates, started_ns=self.started_ns, ended_ns=self.ended_ns, status=self.status,
            tool=self.tool, sub_steps=parts, error=self.error, decision=decision, trace=self.trace,
            metadata=metadata, k=k,
        )  # fmt: skip

    def _asked_for(self, before: int, found: int) -> int | None:
        """Returns the `top_k` of this retriever, or the largest of its parts where all that they `found` went on to the
        guard or the model; None where there were more passages `before` the guard than its `top_k`."""
        top_k = self.top_k
        if top_k is None and self.parts and found == before:
            asked = [part.top_k for part in self.parts]
            top_k = None if None in asked else max(filter(None, asked))
        return top_k if top_k is not None and top_k >= max(before, 1) else None

    def _as_part(self) -> SubStep:
        passages, _ = unpacked(self.result, self.unpack, {})
        return SubStep(
            self.query, passages, self.name, self.started_ns, ended_ns=self.ended_ns, status=self.status
        )


@dataclass(slots=True, eq=False)
class WholeRun:
    """A run that is one retrieval: made by the hook of its start, completed and handed on by the hook of its end."""

    id: str | UUID
    """A framework's own id becomes a text when it is read."""
    query: str
    name: str = ""
    metadata: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None
    """The run's metadata, or a function that gives them when they are first read."""
    started_ns: int = 0
    ended_ns: int = 0
    """0 while the retrieval is open."""
    result: Any = ()
    """The retriever's result, as `unpack` takes it; passages where there is no `unpack`."""
    unpack: Unpack | None = None
    trace: TraceContext | None = None
    top_k: int | None = None
    """The number of passages that the retriever was asked for."""

    def as_events(self) -> tuple[RunStarted, StepEnded, RunEnded]:
        """Returns the events of this run; called on the writer's thread, since it unpacks the passages."""
        id, metadata = str(self.id), self.metadata() if callable(self.metadata) else self.metadata
        run = Run(
            id, self.query, metadata=metadata or {}, name=self.name, started_ns=self.started_ns, trace=self.trace,
            status="open",
        )  # fmt: skip
        step = Retrieval(
            id, id, self.query, self.started_ns, name=self.name, trace=self.trace, ended_ns=self.ended_ns, status="ok",
            metadata={"retriever": self.name} if self.name else None, result=self.result, unpack=self.unpack,
            top_k=self.top_k,
        ).as_step()  # fmt: skip
        if step.passages:
            step.metadata = {**step.metadata, DELIVERED: UNKNOWN}
        return RunStarted(run), StepEnded(step), RunEnded(id, ended_ns=self.ended_ns)


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
            f"what {name!r} returned could not be split into passages, so it counts as one passage: {why}. Name "
            f"another splitter for it in tools={...}",
        )
        return passages_of(found), {**metadata, SPLIT_ERROR: why}
