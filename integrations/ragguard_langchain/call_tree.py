"""Turns the tree of LangChain's calls into runs and steps.

The first call of a tree is a run, or joins one (`tree_runs`); a retriever inside nothing else that retrieves is a step
(`open_calls`). There is one tree a recorder.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from langchain_core.runnables.config import var_child_runnable_config

from ragguard.capture.call_paths import task_path
from ragguard.capture.decisions import Verdict
from ragguard.capture.declarations import warn_of_unknown
from ragguard.capture.handle import innermost
from ragguard.capture.pipeline_run import METADATA_KEYS, RESUME, RUN_ID, RUN_KEYS, PipelineRun, guard_decided
from ragguard.capture.recorder import Recorder, is_paused, trace_context
from ragguard.capture.shapes import NOTHING, Answer
from ragguard.records import Status
from ragguard.runtime.faults import NOTICES
from ragguard_langchain.open_calls import OpenCall
from ragguard_langchain.tree_runs import BareRetrieval, Metadata, TreeRun

LIMIT = 65_536
"""The most open calls that are kept; beyond it the oldest are forgotten."""
THREAD = "thread_id"
"""LangGraph's metadata key of the thread that is resumed after an interrupt."""
_NOT_RETRIEVED = (
    "a guard has judged passages of a retrieval that was not captured, so its decision is stored in no step. If a "
    "tool returns them as text, declare the tool for capture as well: RagGuardCallback(rg, tools={NAME: SPLITTER}); "
    "for a search of your "
    "own, call ragguard.retrieved(query, documents). (Logged once)"
)
_DESCRIBES_RUN = frozenset(RUN_KEYS)
_JOINS = _DESCRIBES_RUN | {THREAD}
"""Metadata keys by which a call may belong to another run, or that are recorded when the call begins."""


class CallTree:
    """Keeps the open calls, and opens and closes their runs and steps. Each recorder has one tree.

    There is no lock, since every call uses this class: each change is one atomic operation of a dictionary or a set,
    and entries that a race leaves behind are removed with their root or by the bound.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.open_calls: dict[UUID, OpenCall | BareRetrieval] = {}
        """The open calls by LangChain's ids; one record where nothing has happened in an outermost retriever."""

    @classmethod
    def of(cls, recorder: Recorder) -> CallTree:
        """Returns the recorder's one tree, however many handlers see the calls."""
        tree = recorder.here.listeners.get("langchain") or recorder.here.listeners.setdefault(
            "langchain", cls(recorder)
        )
        assert isinstance(tree, cls)
        return tree

    def is_whole_run(self, id: UUID, metadata: Metadata) -> bool:
        """True for an outermost retriever call that is a run of its own: it belongs to no other run, is not to be
        recorded at once, and is recorded."""
        recorder = self.recorder
        return not (
            is_paused()
            or not recorder.takes(id)
            or innermost(recorder) is not None
            or (metadata and not _JOINS.isdisjoint(metadata))
        )

    def root(
        self,
        id: UUID,
        question: str,
        metadata: Mapping[str, Any],
        name: str,
        *,
        resumes: bool = False,
        call_id: str = "",
        holds: bool = False,
    ) -> OpenCall:
        """Begins a tree with its first call. The call joins the run around it or the run that its metadata names,
        continues an interrupted run, or becomes a run of its own: with its first step, or at once where its metadata
        says so.

        `call_id` is the id of a tool call. With `holds` the run that the call joins ends after the call; such a call
        always reports its end, also as a stream."""
        run = TreeRun(self.recorder, id, question, name, metadata)
        warn_of_unknown(metadata, "metadata", METADATA_KEYS)
        thread = metadata.get(THREAD)
        run.identify(metadata, f"langgraph:{thread}" if thread else "", resumes=resumes and bool(thread))
        if run.owned:
            run.trace, run.started_ns = trace_context(), time.time_ns()
            run.begun = is_paused()  # for good: calls inside it are not recorded after the pause either
        call = OpenCall(id, run)
        if call_id:
            # The tool calls after one reply of a model are parallel.
            opened = self.recorder.open_run(run.id)
            call.turn = ((("calls", opened.model_calls.asked_so_far if opened else 0), id),)
        elif holds and not run.owned:
            run.held = True
            call.turn = self.recorder.run_held(run.id, id)
        call.started_ns = time.time_ns()
        self.add(id, call)
        if run.names.resumes or not _DESCRIBES_RUN.isdisjoint(metadata):
            run.open()
        return call

    def child(self, parent: OpenCall, id: UUID, details: Mapping[str, Any], call_id: str = "") -> OpenCall:
        """Adds a call inside another one; `details` is what LangChain tells of it, `call_id` a tool call's id."""
        metadata: Metadata = details.get("metadata")
        tags = details.get("tags")
        call = OpenCall(id, parent.run, parent)
        node = metadata.get("langgraph_checkpoint_ns", "") if metadata else ""
        if metadata and node and node != parent.graph_node:
            call.graph_node = node
            if not _is_task(metadata):
                call.branch(parent, metadata.get("langgraph_step"), id)
        elif call_id:
            call.branch(parent, ("calls", parent.messages), id)
        elif tags and any(tag.startswith("map:key:") for tag in tags):
            call.branch(parent, "map", id)
        self.add(id, call)
        return call

    def add(self, id: UUID, call: OpenCall | BareRetrieval) -> None:
        """Adds a call that begins; beyond the bound the oldest one is forgotten."""
        self.open_calls[id] = call
        if type(call) is OpenCall and call.root is not None:
            call.root.members.add(id)
        if len(self.open_calls) > LIMIT:
            self.take(next(iter(self.open_calls)))

    def take(self, id: UUID) -> OpenCall | BareRetrieval | None:
        """Removes and returns a call that has ended; None where it was not seen, or has ended before."""
        call = self.open_calls.pop(id, None)
        if type(call) is OpenCall and call.root is not None:
            call.root.members.discard(id)
        return call

    def open_call(self, id: UUID | None) -> OpenCall | None:
        """Returns the open call of this id. A retriever call that was kept as one record becomes an open run with an
        open step, since something else happens in it."""
        call = None if id is None else self.open_calls.get(id)
        if not isinstance(call, BareRetrieval):
            return call
        run = TreeRun(self.recorder, call.id, call.query, call.name, call.call_metadata)
        run.trace, run.started_ns = call.trace, call.started_ns
        opened = self.open_calls[call.id] = OpenCall(call.id, run)
        opened.started_ns = call.started_ns
        opened.begin_step(call.query, call.name, call.call_metadata, top_k=call.top_k)
        return opened

    def parent(self, id: UUID | None, metadata: Metadata = None) -> OpenCall | None:
        """Returns the open call around one that begins. Returns None for an outermost call, and for the first call
        inside a `with rg.run(...)` in another call's code: the calls in there belong to that run.

        A call with callbacks of its own, and a fallback, have no parent for LangChain; it is read from the context,
        unless the `metadata` say of which run the call is.
        """
        if id is None:
            config = var_child_runnable_config.get()
            if not config or (metadata and not _DESCRIBES_RUN.isdisjoint(metadata)):
                return None
            id = getattr(config.get("callbacks"), "parent_run_id", None)
        call = self.open_call(id)
        if call is None or (handle := innermost(self.recorder)) is None:
            return call
        return None if handle.inside == call.run.id != handle.id else call

    def stands_alone(self, metadata: Metadata) -> bool:
        """True for an outermost call that joins no run: no run is around the call, and its metadata names none."""
        named = metadata and (RUN_ID in metadata or RESUME in metadata)
        return not named and innermost(self.recorder) is None

    def run_of_model(self, parent_id: UUID | None) -> PipelineRun | None:
        """Returns the run in which a model has replied in the call with this id; None outside of any run."""
        if (call := self.parent(parent_id)) is not None:
            return call.run
        handle = innermost(self.recorder)
        return None if handle is None else PipelineRun(self.recorder, handle.id, owned=False)

    def model_asked(self, id: UUID, parent_id: UUID | None, given: object) -> None:
        """Notes that a model is asked in the call with the id `parent_id`, or in plain code inside a run."""
        if (call := self.parent(parent_id)) is not None:
            call.messages += 1
            call.run.asked(id, given, call.path)
        elif (handle := innermost(self.recorder)) is not None:
            PipelineRun(self.recorder, handle.id, owned=False).asked(id, given, task_path())

    def guard_decided(self, parent_id: UUID | None, verdict: Verdict, query: str, tool_call: str) -> None:
        """Records a guard's decision that was made in the call with this id, or in plain code inside a run: it is about
        the retrieval around the call, else about retrievals that have ended. Logs once where there are none."""
        call, handle = self.parent(parent_id), innermost(self.recorder)
        run = handle if call is None else call.run
        if not verdict.judged or run is None:
            return
        if call is not None and call.step_id:
            self.recorder.step_judged(call.step_id, verdict)
        elif not guard_decided(self.recorder, run.id, verdict, query=query, tool_call=tool_call):
            NOTICES.once("guard without a step", _NOT_RETRIEVED)

    def end_root(
        self,
        root: OpenCall,
        answer: Answer = NOTHING,
        question: str = "",
        status: Status = "ok",
        error: BaseException | None = None,
    ) -> None:
        """Closes a tree and its run, unless other code ends the run or the run waits to be resumed."""
        run = root.run
        self.open_calls.pop(root.id, None)
        while root.members:
            left = self.open_calls.pop(root.members.pop(), None)
            if isinstance(left, OpenCall) and left.is_step:
                self.recorder.step_failed(
                    left.step_id, status="interrupted" if run.interrupted else "cancelled"
                )
        run.close(answer, question, status, error)

    def sweep(self, ttl: float) -> None:
        """Ends outermost calls that are too old, such as a retriever whose task was cancelled, of which LangChain
        reports no end."""
        now = time.time_ns()
        for call in list(self.open_calls.values()):
            if (isinstance(call, OpenCall) and call.root is not None) or now - call.started_ns < ttl * 1e9:
                continue
            root = self.open_call(call.id)
            if root is not None and (root is not call or not self.recorder.open_run(root.run.id)):
                self.end_root(root, status="abandoned")


def _is_task(metadata: Mapping[str, Any]) -> bool:
    """True for a task of LangGraph's functional API: nothing says for what its caller has waited."""
    path = metadata.get("langgraph_path")
    return isinstance(path, (tuple, list)) and len(path) > 1 and isinstance(path[1], (tuple, list))
