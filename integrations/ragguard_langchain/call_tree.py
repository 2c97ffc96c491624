"""The tree of LangChain's calls, read as runs and steps.

The first call of a tree is a run, or joins one; a retriever inside nothing else that retrieves
is a step. What a call's descendants need is in its place; the places belong to the recorder.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from ragguard.capture.context import current_run, current_task
from ragguard.capture.handle import references_of
from ragguard.capture.places import Place
from ragguard.capture.recorder import Recorder, describe
from ragguard.capture.trace import trace_context
from ragguard.errors import InvalidInput
from ragguard.records import Passage, Status, TraceContext
from ragguard_langchain.messages import Answer

REFERENCES, NAME, RUN_ID = "ragguard_references", "ragguard_name", "ragguard_run_id"
"""Metadata keys by which a call's config says what its run is."""
_NOT_KEPT = ("ragguard_", "ls_", "langgraph_", "__")


@dataclass(slots=True)
class RunNotes:
    """What a tree knows of its run."""

    question: str
    started_ns: int
    owner: bool = True
    """True when the end of the tree is the end of the run."""
    opened: bool = False
    name: str = ""
    references: list[str] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    trace: TraceContext | None = None
    thread: str = ""
    """Under which the run is resumed, once it was interrupted."""
    interrupted: bool = False
    first_query: str = ""


@dataclass(slots=True)
class ToolCall:
    """A tool call under way, and the steps made in it."""

    name: str
    query: str
    id: str
    started_ns: int
    outer: ToolCall | None = None
    found: list[tuple[str, list[Passage]]] = field(default_factory=list)

    def add(self, step_id: str, passages: list[Passage]) -> None:
        """Remembers a step that was made in this call."""
        call: ToolCall | None = self
        while call is not None:
            call.found.append((step_id, passages))
            call = call.outer


@dataclass(slots=True)
class Scope:
    """What the calls below one inherit from it."""

    run: RunNotes
    graph_node: str = ""
    """LangGraph's name for the node execution that the call is in."""
    forks: Hashable = None
    """Set where the calls directly below run in parallel."""
    tool: ToolCall | None = None
    query: str = ""
    """Of a retrieval."""
    around: Place | None = None
    """Of a retrieval: the open one that the code seems to be inside of."""


_innermost: ContextVar[Place | None] = ContextVar("ragguard_langchain_retrieval", default=None)
"""The retrieval that began last in this context: some wrappers call their inner retriever without telling
LangChain that it is inside. Never reset, since the end is reported in another context; good only while open."""


class CallTree:
    """Puts calls in their places, and opens and closes runs and steps on the way."""

    def __init__(self, recorder: Recorder, *, every_run: bool) -> None:
        self.recorder = recorder
        self.places = recorder.places
        self._every_run = every_run

    def parent(self, id: UUID | None) -> Place | None:
        """The open call of that id."""
        return None if id is None else self.places.get(id)

    def root(
        self, id: UUID, question: str, metadata: Mapping[str, Any], name: str, started_ns: int, *, kind: str
    ) -> Place:
        """The first call of a tree: joins the run around it or named in its metadata, goes on with one that was
        interrupted (`kind` is resume), or is a run of its own."""
        run = RunNotes(question, started_ns, name=str(metadata.get(NAME) or name))
        run_id = self._joined(run, metadata, kind) or str(metadata.get(RUN_ID) or id)
        handle = current_run(self.recorder) if not run.owner else None
        sampled = handle.sampled if handle is not None else self.recorder.samples(run_id)
        place = Place(id, run_id, sampled=sampled, notes=Scope(run))
        self.places.put(id, place)
        run.metadata = {key: value for key, value in metadata.items() if not key.startswith(_NOT_KEPT)}
        run.metadata["framework"] = "langchain"
        run.references = self._references(metadata)
        if not run.opened:
            run.trace = trace_context()
            said = run.references is not None or NAME in metadata or RUN_ID in metadata
            if kind == "retriever" or (kind == "chain" and (self._every_run or said)):
                self._open(place, bare=kind == "retriever")
        return place

    def child(self, parent: Place, id: UUID, metadata: Mapping[str, Any] | None) -> Place:
        """A call inside another one. All calls of an unsampled run share the place of its root."""
        if not parent.sampled:
            root = parent.root or parent
            self.places.put(id, root)
            return root
        scope: Scope = parent.notes
        place = Place(
            id, parent.run_id, parent.root or parent, step_id=parent.step_id, tool=parent.tool, turn=parent.turn,
            notes=scope,
        )  # fmt: skip
        node = metadata.get("langgraph_checkpoint_ns") if metadata else None
        if metadata and node and node != scope.graph_node:
            # A graph's node begins: the nodes of one superstep run in parallel.
            place.turn = ((parent.id, metadata.get("langgraph_step")), id)
            place.notes = replace(scope, graph_node=node, forks=None)
        elif scope.forks is not None:
            place.turn = (scope.forks, id)
            place.notes = replace(scope, forks=None)
        self.places.put(id, place)
        return place

    def around(self, query: str) -> Place | None:
        """The open retrieval for the same query that the code at hand seems to be inside of."""
        place = _innermost.get()
        while place is not None:
            if place.notes.query == query and self.places.get(place.id) is place:
                return place
            place = place.notes.around
        return None

    def begin_step(
        self,
        place: Place,
        query: str,
        name: str,
        metadata: Mapping[str, Any] | None,
        *,
        around: Place | None = None,
        started_ns: int = 0,
    ) -> None:
        """Opens the step that a call is; a part where it is inside another one."""
        scope: Scope = place.notes
        if not scope.run.opened:
            self._open(place.root or place)
        scope.run.first_query = scope.run.first_query or query
        about = {"retriever": name} if name else {}
        if metadata and (node := metadata.get("langgraph_node")):
            about["langgraph_node"] = node
        if scope.tool is not None and scope.tool.id:
            about["tool_call_id"] = scope.tool.id
        within, place.step_id = place.step_id, str(place.id)
        self.recorder.step_started(
            place.step_id, place.run_id, query, within=within, perhaps_within="" if around is None else around.step_id,
            tool=place.tool, name=name, turn=place.turn, metadata=about, started_ns=started_ns,
        )  # fmt: skip
        place.notes = replace(scope, query=query, around=around)
        _innermost.set(place)

    def end_root(
        self,
        root: Place,
        answer: Answer,
        question: str = "",
        status: Status = "ok",
        error: BaseException | None = None,
    ) -> None:
        """Closes a tree: with it its run, unless that is somebody else's to end or waits to be resumed."""
        run: RunNotes = root.notes.run
        for left in self.places.drop(root):
            if left.step_id == str(left.id):
                self.recorder.step_failed(
                    left.step_id, status="interrupted" if run.interrupted else "cancelled"
                )
        if not run.opened:
            return
        question = question or run.question
        if not question and run.first_query:
            question, run.metadata["question_source"] = run.first_query, "query"
        if answer.kind:
            run.metadata["answer_content"] = answer.kind
        if error is not None and status == "error":
            run.metadata["error"] = describe(error)
        if not run.owner:
            self.recorder.run_noted(root.run_id, question, answer.text, run.metadata)
        elif run.thread and (run.interrupted or answer.calls_tools) and status in ("ok", "interrupted"):
            self.recorder.run_noted(root.run_id, question, metadata=run.metadata)
            self.recorder.run_paused(root.run_id, run.thread)
        else:
            status = "interrupted" if run.interrupted and status == "ok" else status
            self.recorder.run_ended(
                root.run_id, answer.text, status, question=question, metadata=run.metadata
            )

    def _joined(self, run: RunNotes, metadata: Mapping[str, Any], kind: str) -> str:
        """The open run that this tree is a part of, or goes on with; '' when there is none."""
        handle = current_run(self.recorder)
        if handle is not None:
            run.owner, run.opened = False, True
            return handle.id
        named = metadata.get(RUN_ID)
        if named and self.recorder.knows(str(named)):
            run.owner, run.opened = False, True
            return str(named)
        if thread := metadata.get("thread_id"):
            run.thread = f"langgraph:{thread}"
            waiting = self.recorder.run_resumed(run.thread)
            if waiting and kind == "resume":
                run.opened = True
                return waiting
            if waiting:  # nobody answered: the thread goes on with something else
                self.recorder.run_ended(waiting, status="interrupted")
        return ""

    def _open(self, root: Place, *, bare: bool = False) -> None:
        run: RunNotes = root.notes.run
        run.opened = True
        self.recorder.run_started(
            root.run_id, run.question, name=run.name, references=run.references, metadata=dict(run.metadata),
            started_ns=run.started_ns, trace=run.trace, task=current_task() if bare else None,
        )  # fmt: skip

    def _references(self, metadata: Mapping[str, Any]) -> list[str] | None:
        try:
            return references_of(metadata.get(REFERENCES))
        except InvalidInput as error:
            self.recorder.faults.note(f"metadata[{REFERENCES!r}]", error)
            return None
