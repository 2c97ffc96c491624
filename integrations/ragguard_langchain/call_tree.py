"""Turns the tree of LangChain's calls into runs and steps.

The first call of a tree is a run, or joins one (`tree_runs`); a retriever inside nothing else that retrieves
is a step (`tree_steps`). What the calls below a call need is in its `OpenCall`; there is one tree a recorder.
"""

from __future__ import annotations

import time
import weakref
from asyncio import Task
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from ragguard.capture.declarations import CaptureOptions, warn_of_unknown
from ragguard.capture.emitter import RunListener
from ragguard.capture.enclosing import is_paused, trace_context
from ragguard.capture.handle import current_handle, innermost
from ragguard.capture.pipeline_run import RESUME, RUN_ID, RUN_KEYS
from ragguard.capture.recorder import Recorder
from ragguard.records import Status
from ragguard_langchain.messages import KEYS, NO_OPTIONS, NOTHING, Answer, texts_in
from ragguard_langchain.open_calls import OpenCall, OpenCalls, Scope
from ragguard_langchain.tree_runs import THREAD, BareRetrievals, TreeRun
from ragguard_langchain.tree_steps import begin_step

GONE_SECONDS = 1.0
"""The seconds after the end of a task from which the calls that it left open count as cancelled."""
_DESCRIBES_RUN = frozenset(RUN_KEYS)


class CallTree:
    """Keeps the open calls, and opens and closes their runs and steps. Each recorder has one tree."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.open_calls: OpenCalls = OpenCalls()
        self.bare = BareRetrievals(recorder)

    @classmethod
    def of(cls, recorder: Recorder) -> CallTree:
        """Returns the recorder's one tree, however many handlers see the calls."""
        listener = recorder.listeners.get("langchain")
        if listener is None:
            tree = cls(recorder)
            listener = RunListener(tree, tree.run_closed, tree.sweep)
            listener = recorder.listeners.setdefault("langchain", listener)
        assert isinstance(listener.state, cls)
        return listener.state

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
        options: CaptureOptions = NO_OPTIONS,
        inputs: object = None,
    ) -> OpenCall:
        """Begins a tree with its first call. The call joins the run around it or the run that its metadata names,
        continues an interrupted run, or becomes a run of its own: with its first step, or at once where its metadata
        says so.

        `call_id` is the id of a tool call. With `holds` the run that the call joins ends after the call; such a call
        always reports its end, also as a stream."""
        run = TreeRun(self.recorder, id, question, name, metadata, options, inputs)
        warn_of_unknown(metadata, "metadata", KEYS)
        thread = metadata.get(THREAD)
        run.identify(metadata, f"langgraph:{thread}" if thread else "", resumes=resumes and bool(thread))
        if run.owned:
            run.trace, run.started_ns = trace_context(), time.time_ns()
            run.begun = is_paused()  # for good: calls inside it are not recorded after the pause either
        open_call = OpenCall(id, run.id, Scope(run))
        open_call.sampled = self.recorder.sampling.takes(run.id, run.names) and not is_paused()
        if call_id:
            open_call.turn = ((("calls", self.recorder.models_asked(run.id)), id),)
        elif holds and not run.owned:
            run.held = True
            open_call.turn = self.recorder.run_held(run.id, id)
        open_call.started_ns = time.time_ns()
        self.open_calls.add_root(open_call, owner=run.owned)
        if run.names.resumes or not _DESCRIBES_RUN.isdisjoint(metadata):
            run.open()
        return open_call

    def open_call(self, id: UUID | None) -> OpenCall | None:
        """Returns the open call of this id. A retriever call that was kept as one record becomes an open run with an
        open step, since something else happens in it."""
        open_call = self.open_calls.get(id)
        if open_call is None and id in self.bare:
            return self._unfold(id)
        return open_call

    def parent(self, id: UUID | None) -> OpenCall | None:
        """Returns the open call around one that begins. Returns None for an outermost call, and for the first call
        inside a `with rg.run(...)` in another call's code: the calls in there belong to that run."""
        open_call = None if id is None else self.open_call(id)
        if open_call is None or current_handle.get() is None:
            return open_call
        handle = innermost(self.recorder)
        return None if handle is not None and handle.inside == open_call.run_id != handle.id else open_call

    def stands_alone(self, metadata: Mapping[str, Any] | None) -> bool:
        """True for an outermost call that joins no run: no run is around the call, and its metadata names none."""
        return (current_handle.get() is None or innermost(self.recorder) is None) and not (
            metadata and (RUN_ID in metadata or RESUME in metadata)
        )

    def _unfold(self, id: UUID | None) -> OpenCall | None:
        """Replaces the one record of a retriever call by an open run with an open step, since something else happens
        in the call."""
        bare = self.bare.pop(id, None)
        if bare is None:
            return self.open_calls.get(id)
        run = TreeRun(self.recorder, bare.id, bare.query, bare.name, bare.call_metadata, bare.options)
        run.trace, run.started_ns = bare.trace, bare.started_ns
        open_call = OpenCall(bare.id, run.id, Scope(run))
        open_call.started_ns, open_call.task = bare.started_ns, bare.task
        self.open_calls.add_root(open_call, owner=True)
        begin_step(open_call, bare.query, bare.name, bare.call_metadata, top_k=bare.top_k)
        return open_call

    def model_asked(self, parent_id: UUID | None, key: UUID, given: object) -> None:
        """Notes that a model is asked, in the call with this id."""
        if (open_call := self.parent(parent_id)) is not None:
            open_call.messages += 1
        if run_id := self._run_at(open_call):
            self.recorder.model_asked(run_id, key, given, texts_in)

    def model_replied(self, parent_id: UUID | None, key: UUID, reply: object) -> None:
        """Notes the reply of a model that was asked in the call with this id."""
        if run_id := self._run_at(self.parent(parent_id)):
            self.recorder.model_replied(run_id, key, reply, texts_in)

    def _run_at(self, around: OpenCall | None) -> str:
        """Returns the id of the run in which a model is asked; '' outside of any run."""
        if around is not None:
            return around.run_id
        handle = innermost(self.recorder)
        return "" if handle is None else handle.id

    def child(
        self,
        parent: OpenCall,
        id: UUID,
        metadata: Mapping[str, Any] | None,
        tags: Sequence[str] | None,
        *,
        call_id: str = "",
    ) -> OpenCall:
        """Adds a call inside another one; `call_id` is the id of a tool call. All calls of an unsampled run share
        the `OpenCall` of its root."""
        root = parent.root or parent
        if not root.sampled:
            self.open_calls.add(id, root, root)
            return root
        scope, turn = parent.notes, parent.turn
        node = metadata.get("langgraph_checkpoint_ns", "") if metadata else ""
        if metadata and node and node != scope.graph_node:
            scope = Scope(scope.run, node, scope.tool)
            if not _is_task(metadata):
                turn = (*turn, ((parent.id, metadata.get("langgraph_step")), id))
        elif call_id:
            turn = (*turn, parent.branch_of_call(id))
        elif tags and any(tag.startswith("map:key:") for tag in tags):
            turn = (*turn, ((parent.id, "map"), id))
        open_call = OpenCall(id, parent.run_id, scope, turn)
        open_call.root, open_call.tool, open_call.step_id = root, parent.tool, parent.step_id
        if parent.condenses:
            open_call.condenses = True
        self.open_calls.add(id, open_call, root)
        return open_call

    def end_root(
        self,
        root: OpenCall,
        answer: Answer = NOTHING,
        question: str = "",
        status: Status = "ok",
        error: BaseException | None = None,
    ) -> None:
        """Closes a tree and its run, unless other code ends the run or the run waits to be resumed."""
        run = root.notes.run
        for left in self.open_calls.remove_tree(root):
            if left.is_step:
                self.recorder.step_failed(
                    left.step_id, status="interrupted" if run.interrupted else "cancelled"
                )
        run.close(answer, question, status, error, sampled=root.sampled)

    def run_closed(self, run_id: str) -> None:
        """Removes the calls of a run that has ended."""
        self.open_calls.forget(run_id)

    def sweep(self, ttl: float) -> None:
        """Ends calls that were cancelled without a report, and calls that are too old."""
        now = time.time_ns()
        for bare in list(self.bare.values()):
            over = bare.task is not None and _is_over(bare.task)
            if over:
                self.open_call(bare.id)  # `GONE_SECONDS` later it ends, as an open call
            elif now - bare.started_ns >= ttl * 1e9 and (old := self.open_call(bare.id)) is not None:
                self.end_root(old, status="abandoned")
        for root in self.open_calls.roots():
            if root.task is not None and _is_over(root.task):
                root.gone_ns = root.gone_ns or now
                if now - root.gone_ns >= GONE_SECONDS * 1e9:
                    self.end_root(root, status="cancelled")
            elif now - root.started_ns >= ttl * 1e9 and not self.recorder.knows(root.run_id):
                self.end_root(root, status="abandoned")


def _is_task(metadata: Mapping[str, Any]) -> bool:
    """True for a task of LangGraph's functional API: nothing says for what its caller has waited."""
    path = metadata.get("langgraph_path")
    return isinstance(path, (tuple, list)) and len(path) > 1 and isinstance(path[1], (tuple, list))


def _is_over(reference: weakref.ref[Task[Any]]) -> bool:
    task = reference()
    return task is None or task.done()
