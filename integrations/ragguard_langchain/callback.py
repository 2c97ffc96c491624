"""The handler that turns LangChain's callbacks into calls of the recorder.

The handler is synchronous and runs inline, since LangChain makes its caller wait for any handler and this form costs
least. It changes none of its arguments; its own faults are counted by the recorder. All its state is in the recorder's
one call tree, which is bounded, so that several handlers of one RagGuard, or one that is attached twice, record each
call once.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler

from ragguard.capture.decisions import Verdict
from ragguard.capture.declarations import CaptureOptions, Locate, Tools, located
from ragguard.capture.documents import snapshot
from ragguard.capture.handle import status_of
from ragguard.capture.pipeline_run import K
from ragguard.capture.recorder import recorder_of
from ragguard.capture.shapes import NOTHING, Answer, answer_in, query_in, question_in
from ragguard.capture.snapshot import top_k_in
from ragguard.capture.tool_outputs import ToolResult
from ragguard.records import TraceContext
from ragguard.runtime.faults import FAULTS, Faults, never_raises
from ragguard.runtime.per_process import PerProcess
from ragguard_langchain.call_tree import CallTree
from ragguard_langchain.open_calls import OpenCall
from ragguard_langchain.spans import span_of
from ragguard_langchain.tree_runs import BareRetrieval

if TYPE_CHECKING:
    from ragguard import RagGuard


class RagGuardCallback(BaseCallbackHandler):
    """Captures the calls that have it among their callbacks: `invoke(…, {"callbacks": [RagGuardCallback(rg)]})`.

    A call's config may say more in its metadata: `ragguard_references`, `ragguard_name`, `ragguard_run_id`,
    `ragguard_resume`; inside `with rg.run(...)` a call joins that run. A call that retrieves nothing is no run,
    unless its metadata says one of these.

    Args:
        rg: The RagGuard that gets the runs.
        tools: Tools that retrieve and return text or JSON: name → splitter (`ragguard.splitters` has the usual
            ones), or a list of the names of those that give search results, MCP's among them. `auto`: every tool is
            a retrieval whose output has the shape of a search result; it is read in the hook, and a log line says
            once which tools it took. Tools that give documents, and retrievers inside tools, need no declaration.
        question: Where a pipeline's question is: a key of what the outermost call is given, or a function of it,
            which is called in the hook. None: the usual places.
        answer: Where a pipeline's answer is: a key of what the outermost call gives, or a function of it, which is
            called in the hook. None: the usual places.
    """

    raise_error = False
    run_inline = True
    # These are properties in LangChain's own handlers.
    ignore_retriever = ignore_chain = ignore_agent = ignore_chat_model = ignore_llm = False
    ignore_retry = True
    ignore_custom_event = True

    def __init__(
        self,
        rg: RagGuard,
        *,
        tools: Tools | None = None,
        question: str | Locate | None = None,
        answer: str | Locate | None = None,
    ) -> None:
        self._recorder = recorder_of(rg)
        self._options = CaptureOptions.checked(tools, question, answer)
        self._recorder.here.calls.declared.update(self._options.tools)
        self._here = PerProcess(partial(CallTree.of, self._recorder))
        self._here.get()

    @property
    def faults(self) -> Faults:
        """The recorder's count of what went wrong in hooks."""
        return self._recorder.faults

    @property
    def tree(self) -> CallTree:
        """The tree of the calls that were reported to this handler and to the other handlers of its RagGuard."""
        return self._here.get()

    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **more: Any
    ) -> None:
        """Begins a chain, a graph or a node; the first call of a tree may begin a run."""
        try:
            tree = self.tree
            if run_id in tree.open_calls:
                return
            name, metadata = more.get("name"), more.get("metadata")
            parent = tree.parent(parent_run_id, metadata)
            if parent is not None:
                tree.child(parent, run_id, more)
            elif name and name.startswith("RunnableEach<") and tree.stands_alone(metadata):
                return  # each call of a batch is a run
            else:
                self._hear_of_interrupts()
                tree.root(
                    run_id, self._question(inputs), metadata or {}, name or "",
                    resumes=_is_resume(inputs), holds=True,
                )  # fmt: skip
        except FAULTS as error:
            self._recorder.faults.note("on_chain_start", error)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, inputs: Any = None, **more: Any) -> None:
        """Ends a chain; an input that was streamed in is known only now."""
        try:
            call = self.tree.take(run_id)
            if type(call) is OpenCall and call.root is None:
                self.tree.end_root(call, self._answer(outputs), self._question(inputs))
        except FAULTS as error:
            self._recorder.faults.note("on_chain_end", error)

    @never_raises
    def on_chain_error(
        self, /, error: BaseException, *, run_id: UUID, inputs: Any = None, **more: Any
    ) -> None:
        """Ends a chain that failed, was cancelled, or was interrupted to be resumed later."""
        self._fail(run_id, error, self._question(inputs))

    def on_retriever_start(
        self, serialized: Any, query: str, *, run_id: UUID, parent_run_id: UUID | None = None, **more: Any
    ) -> None:
        """Begins a retriever: a step, or a part of the retrieval around it."""
        try:
            tree = self.tree
            if run_id in tree.open_calls:
                return
            query = query if isinstance(query, str) else question_in(query)
            name, metadata = more.get("name") or "", more.get("metadata")
            top_k = top_k_in(metadata[K]) if metadata and K in metadata else None
            parent = tree.parent(parent_run_id, metadata)
            if parent is not None:
                call = tree.child(parent, run_id, more)
            elif tree.is_whole_run(run_id, metadata):
                whole = BareRetrieval(run_id, query, name, metadata, top_k=top_k)
                tree.add(run_id, whole)
                return
            else:
                call = tree.root(run_id, query, metadata or {}, name)
            call.begin_step(query, name, metadata, top_k=top_k)
        except FAULTS as error:
            self._recorder.faults.note("on_retriever_start", error)

    def on_retriever_end(self, documents: Any, *, run_id: UUID, **more: Any) -> None:
        """Ends a retriever with its documents: the same list that its caller gets, so the hook copies it at once."""
        try:
            call = self.tree.take(run_id)
            if isinstance(call, BareRetrieval):
                call.trace = span_of(run_id, retrieval=True) or call.trace
                self._recorder.run_made(call, snapshot(documents))
            elif call is not None:
                if self._recorder.wants(call.step_id):
                    taken = snapshot(documents)
                    call.note_step(call.step_id)
                    call.end_step(taken, span_of(run_id, retrieval=True))
                if call.root is None:
                    self.tree.end_root(call)
        except FAULTS as error:
            self._recorder.faults.note("on_retriever_end", error)

    @never_raises
    def on_retriever_error(self, /, error: BaseException, *, run_id: UUID, **more: Any) -> None:
        """Ends a retriever that failed."""
        self._fail(run_id, error, trace=span_of(run_id, retrieval=True))

    @never_raises
    def on_tool_start(
        self,
        /,
        serialized: Any,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **more: Any,
    ) -> None:
        """Begins a tool: a step where the tool is declared as a retrieval, else a call in which retrievers may be
        called."""
        tree = self.tree
        if run_id in tree.open_calls:
            return
        name = str((serialized or {}).get("name") or more.get("name") or "")
        inputs = more.get("inputs")
        query = query_in(inputs) if isinstance(inputs, dict) and inputs else str(input_str)
        metadata, call_id = more.get("metadata"), more.get("tool_call_id") or ""
        parent = tree.parent(parent_run_id, metadata)
        if parent is None:
            call = tree.root(run_id, query, metadata or {}, name, call_id=call_id)
        else:
            call = tree.child(parent, run_id, more, call_id)
        call.is_tool(name, query, call_id, metadata)
        call.trace = span_of(run_id)
        if name in self._options.tools:
            call.begin_step(query, "", metadata)

    @never_raises
    def on_tool_end(self, /, output: Any, *, run_id: UUID, **more: Any) -> None:
        """Ends a tool with its output: documents, a string for a splitter, or something that is no retrieval."""
        call = self.tree.take(run_id)
        if isinstance(call, OpenCall):
            result = ToolResult.of(output, declared=call.is_step, by_rule=self._options.tools.by_rule)
            call.end_tool(self._options.tools, result)
            if call.root is None:
                self.tree.end_root(call)

    @never_raises
    def on_tool_error(self, /, error: BaseException, *, run_id: UUID, **more: Any) -> None:
        """Closes the call of a tool that failed, or that was interrupted to be resumed later."""
        self._fail(run_id, error)

    @never_raises
    def on_chat_model_start(
        self, /, serialized: Any, messages: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **_: Any
    ) -> None:
        """Notes that a model is asked for a message: the tool calls of one message are parallel, those of the next
        message follow. Of what was retrieved, those passages count as read that stand in the messages."""
        self.tree.model_asked(run_id, parent_run_id, messages)

    @never_raises
    def on_llm_start(
        self, /, serialized: Any, prompts: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **_: Any
    ) -> None:
        """Notes that a model of texts is asked."""
        self.tree.model_asked(run_id, parent_run_id, prompts)

    def on_llm_new_token(
        self, token: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **_: Any
    ) -> None:
        """Keeps a piece of a model's reply: where a stream is not read to its end, the pieces are all that is known."""
        try:
            call = self.tree.open_calls.get(parent_run_id) if parent_run_id else None
            if type(call) is OpenCall and isinstance(token, str) and run_id in call.run.streams:
                call.run.streams[run_id].append(token)
        except FAULTS as error:
            self._recorder.faults.note("on_llm_new_token", error)

    @never_raises
    def on_llm_end(
        self, /, response: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **more: Any
    ) -> None:
        """Notes a model's reply."""
        if run := self.tree.run_of_model(parent_run_id):
            run.replied(run_id, response.generations)

    @never_raises
    def on_llm_error(
        self, /, error: BaseException, *, run_id: UUID, parent_run_id: UUID | None = None, **_: Any
    ) -> None:
        """Notes that a call of a model has failed, or that its stream was closed."""
        if (call := self.tree.open_call(parent_run_id)) is not None:
            call.run.failed(run_id, error)

    @never_raises
    def on_interrupt(self, /, event: Any) -> Any:
        """Notes that LangGraph has stopped a graph, at an interrupt or a breakpoint, until somebody resumes it."""
        if (call := self.tree.open_call(event.run_id)) is not None:
            call.run.interrupted = True

    @never_raises
    def guard_decided(self, run_id: UUID | None, verdict: Verdict, query: str, tool_call: str) -> None:
        """Records a guard's decision that was made inside the call with this id; LangChain has no event for it."""
        self.tree.guard_decided(run_id, verdict, query, tool_call)

    def _hear_of_interrupts(self) -> None:
        """Makes this a handler of LangGraph's kind, once LangGraph is there: no other is told of interrupts."""
        graph = getattr(sys.modules.get("langgraph.callbacks"), "GraphCallbackHandler", None)
        if graph is None or isinstance(self, graph):
            return
        cls = type(self)
        if cls not in _graph_kinds:
            _graph_kinds[cls] = type(cls.__name__, (cls, graph), {"__module__": cls.__module__})
        self.__class__ = _graph_kinds[cls]

    def _question(self, inputs: Any) -> str:
        """Returns the question in the input of the outermost call."""
        found = located("question", self._options.question, inputs, self._recorder.faults)
        return question_in(inputs if found is None else found)

    def _answer(self, outputs: Any) -> Answer:
        """Returns the answer that the output of the outermost call holds."""
        found = located("answer", self._options.answer, outputs, self._recorder.faults)
        return answer_in(outputs if found is None else found)

    def _fail(
        self, run_id: UUID, error: BaseException, question: str = "", trace: TraceContext | None = None
    ) -> None:
        call, status = self.tree.open_call(run_id), status_of(error)
        if call is None:
            return
        self.tree.take(run_id)
        if status == "interrupted":
            call.run.interrupted = True
        if call.is_step:
            self._recorder.step_failed(call.step_id, error, status, trace)
        elif status == "error":
            call.end_tool(self._options.tools, ToolResult(error=error))
        if call.root is None:
            self.tree.end_root(call, NOTHING, question, status, error)


_graph_kinds: dict[type, type] = {}
"""The classes of handlers of LangGraph's kind, by the classes without it."""


def _is_resume(inputs: object) -> bool:
    """True for an input that continues a graph where it stopped: LangGraph's Command with an answer, or None."""
    return inputs is None or getattr(inputs, "resume", None) is not None
