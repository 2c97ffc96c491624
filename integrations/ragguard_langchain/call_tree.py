"""The tree of LangChain's calls, read as runs and steps.

The first call of a tree is a run, or joins one; a retriever inside nothing else that retrieves
is a step. What a call's descendants need is in its place; the places belong to the recorder.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from ragguard.capture.context import current_run, current_task
from ragguard.capture.faults import describe
from ragguard.capture.handle import references_of
from ragguard.capture.places import Place, Places
from ragguard.capture.recorder import Recorder
from ragguard.capture.trace import trace_context
from ragguard.errors import InvalidInput
from ragguard.records import Status, TraceContext
from ragguard_langchain.messages import NOTHING, Answer

REFERENCES, NAME, RUN_ID = "ragguard_references", "ragguard_name", "ragguard_run_id"
"""Metadata keys by which a call's config says what its run is."""
_SAID = {REFERENCES, NAME, RUN_ID}
_NOT_KEPT = ("ragguard_", "ls_", "langgraph_", "__")


@dataclass(slots=True)
class RunNotes:
    """What a tree knows of its run."""

    question: str
    name: str
    metadata: Mapping[str, Any]
    """What the call's config said."""
    owner: bool = True
    """True when the end of the tree is the end of the run."""
    opened: bool = False
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
    found: list[tuple[str, list[str]]] = field(default_factory=list)

    def add(self, step_id: str, texts: list[str]) -> None:
        """Remembers a step that was made in this call."""
        call: ToolCall | None = self
        while call is not None:
            call.found.append((step_id, texts))
            call = call.outer


@dataclass(slots=True)
class Scope:
    """What the calls below one inherit from it."""

    run: RunNotes
    graph_node: str = ""
    """LangGraph's name for the node execution that the call is in."""
    tool: ToolCall | None = None
    forks: Hashable = None
    """Set where the calls directly below run in parallel."""


class Inside(NamedTuple):
    """A retrieval that has begun, and the one that it was begun in."""

    place: Place[Scope]
    query: str
    outer: Inside | None


_innermost: ContextVar[Inside | None] = ContextVar("ragguard_langchain_retrieval", default=None)
"""The retrieval that began last in this context: some wrappers call their inner retriever without telling
LangChain that it is inside. Never reset, since the end is reported in another context; good only while open."""


class CallTree:
    """Puts calls in their places, and opens and closes runs and steps on the way."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.places: Places[Scope] = recorder.places

    def parent(self, id: UUID | None) -> Place[Scope] | None:
        """The open call of that id."""
        return None if id is None else self.places.get(id)

    def root(
        self, id: UUID, question: str, metadata: Mapping[str, Any], name: str, *, resumes: bool = False
    ) -> Place[Scope]:
        """The first call of a tree: joins the run around it or the one its metadata names, goes on with one that
        was interrupted, or may become a run of its own: with its first step, or when its metadata says so."""
        run = RunNotes(question, name, metadata)
        run_id, sampled = self._joined(run, resumes)
        if not run_id:
            run_id = str(metadata.get(RUN_ID) or id)
            sampled = self.recorder.samples(run_id)
            run.trace = trace_context()
        place = Place(id, run_id, Scope(run), sampled=sampled, started_ns=time.time_ns())
        self.places.plant(place, owner=run.owner)
        if not run.opened and not metadata.keys().isdisjoint(_SAID):
            self._open(place)
        return place

    def child(self, parent: Place[Scope], id: UUID, metadata: Mapping[str, Any] | None) -> Place[Scope]:
        """A call inside another one. All calls of an unsampled run share the place of its root."""
        root = parent.root or parent
        if not parent.sampled:
            self.places.put(id, root, root)
            return root
        scope, turn = parent.notes, parent.turn
        node = metadata.get("langgraph_checkpoint_ns", "") if metadata else ""
        if metadata and node and node != scope.graph_node:
            # A graph's node begins: the nodes of one superstep run in parallel.
            turn = ((parent.id, metadata.get("langgraph_step")), id)
            scope = Scope(scope.run, node, scope.tool)
        elif scope.forks is not None:
            turn = (scope.forks, id)
            scope = Scope(scope.run, scope.graph_node, scope.tool)
        place = Place(id, parent.run_id, scope, root, True, parent.step_id, False, parent.tool, turn)
        self.places.put(id, place, root)
        return place

    def around(self, query: str) -> Inside | None:
        """The open retrieval for the same query that the code at hand seems to be inside of."""
        inside = _innermost.get()
        while inside is not None:
            if inside.query == query and self.places.get(inside.place.id) is inside.place:
                return inside
            inside = inside.outer
        return None

    def begin_step(
        self,
        place: Place[Scope],
        query: str,
        name: str,
        metadata: Mapping[str, Any] | None,
        around: Inside | None = None,
        *,
        started_ns: int = 0,
    ) -> None:
        """Opens the step that a call is; a part where it is inside another one."""
        scope = place.notes
        run = scope.run
        is_root = place.root is None
        step_id = place.run_id if is_root and run.owner and not run.opened else str(place.id)
        if not run.opened:
            self._open(place.root or place, bare=is_root)
        run.first_query = run.first_query or query
        about: dict[str, Any] = {}
        if name:
            about["retriever"] = name
        if metadata and "langgraph_node" in metadata:
            about["langgraph_node"] = metadata["langgraph_node"]
        if scope.tool is not None and scope.tool.id:
            about["tool_call_id"] = scope.tool.id
        self.recorder.step_started(
            step_id, place.run_id, query, within=place.step_id,
            perhaps_within="" if around is None else around.place.step_id, tool=place.tool, name=name,
            turn=place.turn, metadata=about, started_ns=started_ns, trace=run.trace if is_root else "here",
        )  # fmt: skip
        place.step_id, place.is_step = step_id, True
        _innermost.set(Inside(place, query, around))

    def end_root(
        self,
        root: Place[Scope],
        answer: Answer = NOTHING,
        question: str = "",
        status: Status = "ok",
        error: BaseException | None = None,
    ) -> None:
        """Closes a tree: with it its run, unless that is somebody else's to end or waits to be resumed."""
        run = root.notes.run
        for left in self.places.drop(root):
            if left.is_step:
                self.recorder.step_failed(
                    left.step_id, status="interrupted" if run.interrupted else "cancelled"
                )
        if not run.opened:
            return
        about: dict[str, Any] = {}
        question = question or run.question
        if not question and run.first_query:
            question, about["question_source"] = run.first_query, "query"
        if answer.kind:
            about["answer_content"] = answer.kind
        if not run.owner:
            self.recorder.run_noted(root.run_id, question, answer.text, about)
            return
        if run.thread and (run.interrupted or answer.calls_tools) and status in ("ok", "interrupted"):
            self.recorder.run_noted(root.run_id, question, metadata=about)
            self.recorder.run_paused(root.run_id, run.thread)
            return
        if error is not None and status == "error":
            about["error"] = describe(error)
        if run.interrupted and status == "ok":
            status = "interrupted"
        self.recorder.run_ended(root.run_id, answer.text, status, question=question, metadata=about)

    def _joined(self, run: RunNotes, resumes: bool) -> tuple[str, bool]:
        """The open run that a tree is a part of, or goes on with, and whether it is sampled; '' for none."""
        handle = current_run(self.recorder)
        if handle is not None:
            run.owner, run.opened = False, True
            return handle.id, handle.sampled
        named = run.metadata.get(RUN_ID)
        if named and self.recorder.knows(str(named)):
            run.owner, run.opened = False, True
            return str(named), self.recorder.samples(str(named))
        if thread := run.metadata.get("thread_id"):
            run.thread = f"langgraph:{thread}"
            waiting = self.recorder.run_resumed(run.thread)
            if waiting and resumes:
                run.opened = True
                return waiting, True
            if waiting:  # nobody answered: the thread goes on with something else
                self.recorder.run_ended(waiting, status="interrupted")
        return "", True

    def _open(self, root: Place[Scope], *, bare: bool = False) -> None:
        """Begins the run of a tree. A `bare` retriever or tool says nothing when it is cancelled."""
        run = root.notes.run
        run.opened = True
        metadata = {key: value for key, value in run.metadata.items() if not key.startswith(_NOT_KEPT)}
        metadata["framework"] = "langchain"
        references = None
        if REFERENCES in run.metadata:
            try:
                references = references_of(run.metadata[REFERENCES])
            except InvalidInput as error:
                self.recorder.faults.note(f"metadata[{REFERENCES!r}]", error)
        self.recorder.run_started(
            root.run_id, run.question, name=str(run.metadata.get(NAME) or run.name), references=references,
            metadata=metadata, started_ns=root.started_ns, trace=run.trace, task=current_task() if bare else None,
        )  # fmt: skip
