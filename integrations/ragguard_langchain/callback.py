"""The handler: LangChain's callbacks in, the recorder's verbs out.

Sync and inline, since LangChain makes its caller wait for any handler and this is the form that
costs least. It changes nothing it is given, and its own faults end in the recorder's count. All
it remembers is in the recorder's bounded places, so that several handlers of one RagGuard, or
one that is attached twice, see the same call once.
"""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler

from ragguard.capture.events import Splitter
from ragguard.capture.faults import Faults, never_raises
from ragguard.capture.places import Place
from ragguard.errors import InvalidInput
from ragguard.records import Status
from ragguard_langchain.call_tree import CallTree, ToolCall
from ragguard_langchain.messages import (
    Answer,
    answer_of,
    documents_of,
    question_of,
    snapshot,
    tool_query,
    tool_text,
)

if TYPE_CHECKING:
    from ragguard import RagGuard


class RagGuardCallback(BaseCallbackHandler):
    """Captures the calls it is given to: `invoke(…, {"callbacks": [RagGuardCallback(rg)]})`.

    `tools` names tools that retrieve and return one string, each with a splitter that takes the
    string apart (`ragguard.capture.splitters` has the usual ones). Tools that give documents as
    artifacts, and retrievers inside tools, need no declaration. With `every_run=False` a call
    that retrieves nothing is not recorded.

    A call's config may say more in its metadata: `ragguard_references`, `ragguard_name`,
    `ragguard_run_id`; inside `with rg.run(...)` a call joins that run.
    """

    raise_error = False
    run_inline = True
    ignore_llm = True
    ignore_chat_model = True
    ignore_retry = True

    def __init__(
        self, rg: RagGuard, *, tools: Mapping[str, Splitter] | None = None, every_run: bool = True
    ) -> None:
        for name, splitter in (tools or {}).items():
            if not callable(splitter):
                raise InvalidInput(f"tools[{name!r}]", splitter, "a function from a text to passages")
        self._recorder = rg.recorder
        self._tree = CallTree(rg.recorder, every_run=every_run)
        self._tools = dict(tools or {})

    @property
    def faults(self) -> Faults:
        """The recorder's count of what went wrong in hooks."""
        return self._recorder.faults

    @never_raises
    def on_chain_start(
        self,
        serialized: Mapping[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A chain, a graph or a node begins; the first call of a tree begins a run."""
        tree = self._tree
        if tree.parent(run_id) is not None:
            return
        name = kwargs.get("name") or ""
        parent = tree.parent(parent_run_id)
        if parent is None:
            kind = "resume" if _is_resume(inputs) else "chain"
            place = tree.root(run_id, question_of(inputs), metadata or {}, name, time.time_ns(), kind=kind)
        else:
            place = tree.child(parent, run_id, metadata)
        if place.sampled and name.startswith("RunnableParallel<"):
            place.notes = replace(place.notes, forks=run_id)

    @never_raises
    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A chain ends; only now is an input known that was streamed in."""
        place = self._pop(run_id)
        if place is not None and place.root is None:
            self._tree.end_root(place, answer_of(outputs), question_of(kwargs.get("inputs")))

    @never_raises
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A chain failed, was cancelled, or was interrupted to be resumed later."""
        place = self._pop(run_id)
        if place is None:
            return
        status = _status_of(error)
        if status == "interrupted":
            place.notes.run.interrupted = True
        if place.root is None:
            self._tree.end_root(place, Answer(), question_of(kwargs.get("inputs")), status, error)

    @never_raises
    def on_retriever_start(
        self,
        serialized: Mapping[str, Any] | None,
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A retriever begins: a step, or a part of the retrieval around it."""
        tree = self._tree
        if tree.parent(run_id) is not None:
            return
        query = question_of(query)
        name = kwargs.get("name") or ""
        around = tree.around(query)
        parent = tree.parent(parent_run_id) or around
        if parent is None:
            place = tree.root(run_id, query, metadata or {}, name, time.time_ns(), kind="retriever")
        else:
            place = tree.child(parent, run_id, metadata)
        if place.sampled:
            tree.begin_step(place, query, name, metadata, around=around)

    @never_raises
    def on_retriever_end(self, documents: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A retriever gave its documents: the very list that its caller gets, so it is copied at once."""
        place = self._pop(run_id)
        if place is None:
            return
        if self._recorder.wants(place.step_id):
            passages = snapshot(documents)
            if place.notes.tool is not None:
                place.notes.tool.add(place.step_id, passages)
            self._recorder.step_ended(place.step_id, passages)
        if place.root is None:
            self._tree.end_root(place, Answer())

    @never_raises
    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A retriever failed."""
        self._fail(run_id, error)

    @never_raises
    def on_tool_start(
        self,
        serialized: Mapping[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool begins: a step if it was declared to be one, else the place where retrievers may be called."""
        tree = self._tree
        if tree.parent(run_id) is not None:
            return
        name = str((serialized or {}).get("name") or kwargs.get("name") or "")
        query, started_ns = tool_query(inputs, input_str), time.time_ns()
        parent = tree.parent(parent_run_id)
        if parent is None:
            place = tree.root(run_id, query, metadata or {}, name, started_ns, kind="tool")
        else:
            place = tree.child(parent, run_id, metadata)
        if not place.sampled:
            return
        call = ToolCall(name, query, str(kwargs.get("tool_call_id") or ""), started_ns, place.notes.tool)
        if call.id and place.turn is not None:
            place.turn = (place.turn[0], run_id)  # the calls of one message are parallel, whoever runs them
        place.tool, place.notes = name, replace(place.notes, tool=call)
        if name in self._tools:
            tree.begin_step(place, query, "", metadata)

    @never_raises
    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool gave something: documents, one string that a splitter takes apart, or nothing of ours."""
        place = self._pop(run_id)
        if place is None:
            return
        if place.sampled:
            documents = documents_of(output)
            if self._recorder.wants(place.step_id) and place.step_id == str(run_id):
                self._end_tool_step(place, output, documents)
            elif documents and not place.step_id:
                self._take_artifact(place, documents)
        if place.root is None:
            self._tree.end_root(place, Answer())

    @never_raises
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool failed, or was interrupted to be resumed later."""
        self._fail(run_id, error)

    def _pop(self, run_id: UUID) -> Place | None:
        """The call that ends now; None when it was not seen, has ended before, or is one of an unsampled run."""
        place = self._tree.places.pop(run_id)
        return place if place is not None and place.id == run_id else None

    def _fail(self, run_id: UUID, error: BaseException) -> None:
        place = self._pop(run_id)
        if place is None:
            return
        status = _status_of(error)
        if place.step_id == str(run_id):
            self._recorder.step_failed(place.step_id, error, status)
        if place.root is None:
            self._tree.end_root(place, Answer(), "", status, error)

    def _end_tool_step(self, place: Place, output: object, documents: list[Any] | None) -> None:
        """A declared tool: documents where it gives them, else its text, to be taken apart later."""
        call: ToolCall = place.notes.tool
        if documents is not None:
            self._recorder.step_ended(place.step_id, snapshot(documents))
        else:
            text, failed = tool_text(output)
            if failed:
                self._recorder.step_failed(place.step_id, text)
            else:
                self._recorder.step_answered(place.step_id, text, self._tools[call.name])
        call.add(place.step_id, [])

    def _take_artifact(self, place: Place, documents: list[Any]) -> None:
        """An undeclared tool that gave documents: what the model got of the one step inside, or a step itself."""
        call: ToolCall = place.notes.tool
        passages = snapshot(documents)
        if not call.found:
            self._tree.begin_step(place, call.query, "", None, started_ns=call.started_ns)
            self._recorder.step_ended(place.step_id, passages)
            call.add(place.step_id, passages)
        elif len(call.found) == 1 and [p.text for p in call.found[0][1]] != [p.text for p in passages]:
            self._recorder.step_amended(call.found[0][0], place.run_id, passages)


def _is_resume(inputs: object) -> bool:
    """True for what continues a graph where it stopped: LangGraph's Command with an answer, or nothing at all."""
    return inputs is None or getattr(inputs, "resume", None) is not None


def _status_of(error: BaseException) -> Status:
    """How a call ended that gave no result. LangGraph's classes are told by name: it need not be installed."""
    if isinstance(error, (CancelledError, GeneratorExit, KeyboardInterrupt)):
        return "cancelled"
    if any(kind.__name__ == "GraphInterrupt" for kind in type(error).__mro__):
        return "interrupted"
    return "error"
