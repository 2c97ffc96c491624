"""Recognises the operations that Haystack traces, and reports them to the recorder: the outermost pipeline or agent
that retrieves is a run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ragguard.capture.call_paths import CallPath, task_path
from ragguard.capture.decisions import Verdict
from ragguard.capture.declarations import DeclaredTools
from ragguard.capture.events import Branch
from ragguard.capture.handle import status_of
from ragguard.capture.model_calls import TOOL_CALL
from ragguard.capture.pipeline_run import PipelineRun, guard_decided, tool_ended
from ragguard.capture.recorder import Recorder
from ragguard.capture.retrievals import Unpack
from ragguard.capture.shapes import answer_in, query_in
from ragguard.capture.snapshot import documents_in, passages_of
from ragguard.capture.tool_outputs import ToolResult
from ragguard.records import Passage, new_id
from ragguard.runtime.faults import NOTICES, Faults, never_raises

PIPELINE, AGENT = "haystack.pipeline.run", "haystack.agent.run"
COMPONENT, TOOL = "haystack.component.run", "haystack.agent.step.tool"
MODEL = "haystack.agent.step.llm"
_QUERIES = ("query", "queries", "question", "search_query")
"""The inputs by which a component is asked."""
_EMBEDDINGS = ("query_embedding", "query_sparse_embedding")


def retrieves(tags: Mapping[str, Any]) -> bool:
    """True for a component that gives documents, is given none, and is asked by a query, its embedding or filters; or
    is called a retriever. A converter or a splitter, which make documents of files or documents, is none."""
    inputs = _types(tags, "input")
    if not any("Document" in kind for kind in _types(tags, "output").values()):
        return False
    if any("Document" in kind for kind in inputs.values()):
        return False
    return str(tags.get("haystack.component.type", "")).endswith("Retriever") or any(
        name in inputs for name in (*_QUERIES, *_EMBEDDINGS)
    )


def senders(tags: Mapping[str, Any]) -> set[str]:
    """Returns the names of the components whose outputs a component is given."""
    sockets = tags.get("haystack.component.input_spec") or {}
    return {name for socket in sockets.values() for name in socket.get("senders") or ()}


def _types(tags: Mapping[str, Any], side: str) -> dict[str, str]:
    sockets = tags.get(f"haystack.component.{side}_spec") or {}
    return {name: str(socket.get("type", "")) for name, socket in sockets.items()}


_WITHOUT_ORDER = (
    "a Haystack agent called several tools in one turn, and it is unknown to which request of the model a call "
    "belongs: the request has no id, or other arguments than the call. These steps are in the order in which they "
    "ended. "
    "(Logged once)"
)
_numbers = itertools.count()
Question = Callable[[Mapping[str, Any]], str]
"""A function from what a pipeline or an agent is given to the question."""


class HaystackRun(PipelineRun):
    """The run of an outermost pipeline or agent, with what was seen in it so far."""

    answer: str | None = None
    asks_model = False

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder, new_id())
        self.identify({})
        self.started_ns = time.time_ns()


class Operation:
    """One operation at work. Haystack says what it is given and what it gives while it is open."""

    def __init__(
        self, kind: str, tags: Mapping[str, Any], run: HaystackRun, around: Operation | None
    ) -> None:
        self.kind, self.tags, self.run, self.around = kind, tags, run, around
        self.name = str(tags.get("haystack.component.name") or tags.get("haystack.tool.name") or "")
        self.number = next(_numbers)
        self.path: CallPath = (*(around.path if around else task_path()), self.number)
        self.given: Mapping[str, Any] = {}
        self.result: Any = None
        self.started_ns = time.time_ns()
        self.steps: Sequence[str] = ()
        """The ids of the steps that were made inside."""
        self.requests: Sequence[Any] = ()
        """The requests for tools in the latest message of an agent's model."""
        self.depths: dict[str, int] = {}
        """The number of retrievals, one fed by the other, behind each component's output of a pipeline."""

    def enclosing(self, kind: str) -> Operation | None:
        """Returns the innermost operation of a kind around this one."""
        around = self.around
        while around is not None and around.kind != kind:
            around = around.around
        return around


def request_of(tool: Operation) -> str:
    """Returns the id of the request for which an agent calls a tool; '' where it cannot be told. Haystack says the
    arguments of the request, and not its id."""
    agent = tool.enclosing(AGENT)
    requests = () if agent is None else agent.requests
    same = [one for one in requests if one.arguments is tool.given]
    same = same or [one for one in requests if one.tool_name == tool.name and one.arguments == tool.given]
    if len(requests) > 1 and not (same and same[0].id):
        NOTICES.once("tools of Haystack without an order", _WITHOUT_ORDER)
    return str(same[0].id or "") if same else ""


class Operations:
    """Reports operations as runs and steps."""

    def __init__(self, recorder: Recorder, tools: DeclaredTools, question: Question) -> None:
        self.recorder, self.tools, self.question = recorder, tools, question

    @property
    def faults(self) -> Faults:
        """The recorder's count of what went wrong in hooks."""
        return self.recorder.faults

    @never_raises
    def began(self, kind: str, tags: Mapping[str, Any], around: Operation | None) -> Operation:
        """Returns the operation that begins; the outermost one begins a run, which is recorded once it retrieves."""
        run = HaystackRun(self.recorder) if around is None else around.run
        operation = Operation(kind, tags, run, around)
        if kind == PIPELINE:
            self._asked(operation, tags.get("haystack.pipeline.input_data"))
        return operation

    @never_raises
    def tagged(self, operation: Operation, key: str, value: Any) -> None:
        """Takes what an operation is given or gives."""
        if key.endswith("input"):
            operation.given = value if isinstance(value, Mapping) else {}
            if operation.kind == AGENT:
                self._asked(operation, value)
        elif key.endswith("output"):
            operation.result = value

    @never_raises
    def ended(self, operation: Operation, error: BaseException | None) -> None:
        """Reports an operation that has ended."""
        if operation.kind == COMPONENT:
            self._component(operation, error)
        elif operation.kind == TOOL:
            self._tool(operation, error)
        if operation.kind in (COMPONENT, MODEL) and error is None:
            self._model(operation)
        if operation.around is None:
            self._end(operation, error)

    @never_raises
    def decided(self, operation: Operation, verdict: Verdict) -> None:
        """Adds a guard's decision to the retrievals whose passages it judged."""
        guard_decided(self.recorder, operation.run.id, verdict)

    def _asked(self, operation: Operation, data: object) -> None:
        if operation.around is None and isinstance(data, Mapping):
            operation.run.question = self.question(data)

    def _component(self, operation: Operation, error: BaseException | None) -> None:
        searches, pipeline = retrieves(operation.tags), operation.enclosing(PIPELINE)
        depth = 0
        if pipeline is not None:
            depth = max((pipeline.depths.get(name, 0) for name in senders(operation.tags)), default=0)
            pipeline.depths[operation.name] = depth + searches
        if not searches:
            if error is None:
                self._rewritten(operation)
            return
        tool = operation.enclosing(TOOL)  # a retriever that is asked by an embedding knows no words
        query = (
            query_in(operation.given, whole=False)
            or ("" if tool is None else query_in(tool.given, whole=False))
            or operation.run.question
        )
        step_id = self._begin(operation, query, (-1 if pipeline is None else pipeline.number, depth))
        if error is not None:
            self.recorder.step_failed(step_id, error, status_of(error))
        else:
            self.recorder.step_ended(step_id, passages_of(documents_in(operation.result) or ()))

    def _rewritten(self, operation: Operation) -> None:
        """Notes that a component was given documents, and gave others: windows around them, their parents."""
        given, gave = documents_in(operation.given), operation.result
        if not given or not isinstance(gave, Mapping):
            return
        made = passages_of(documents_in(gave) or ())
        for texts in gave.values():  # such as a window for each document
            if (
                isinstance(texts, list)
                and len(texts) == len(given)
                and all(isinstance(one, str) for one in texts)
            ):
                made += [Passage(text, one.id) for text, one in zip(texts, given, strict=True)]
        if made:
            ids = [one.id for one in given]
            self.recorder.passages_rewritten(operation.run.id, operation.name, ids, partial(list, made))

    def _tool(self, operation: Operation, error: BaseException | None) -> None:
        splitter, output = self.tools.get(operation.name), operation.result
        if error is not None or operation.tags.get("haystack.tool.error"):
            result = ToolResult(error=error or str(output))
        else:
            result = ToolResult.of(output, declared=splitter is not None, by_rule=self.tools.by_rule)
        if operation.steps:
            splitter = None  # a pipeline inside the tool has been recorded
        query = query_in(operation.given)

        def end(found: Any, unpack: Unpack | None) -> None:
            found = passages_of(found) if unpack is None else found
            self.recorder.step_ended(operation.steps[-1], found, unpack=unpack)

        tool_ended(
            self.recorder, operation.run.id, operation.name, result, begin=partial(self._begin, operation, query),
            end=end, splitter=splitter, inside=operation.steps,
        )  # fmt: skip

    def _begin(self, operation: Operation, query: str, turn: tuple[int, int] | None = None) -> str:
        """Begins a step, and returns its id."""
        run, step_id = operation.run, new_id()
        run.begin(query)
        tool = operation if operation.kind == TOOL else operation.enclosing(TOOL)
        # Tools that an agent calls in one step of its own, and retrievers of a pipeline of which none feeds the
        # other, share a turn.
        branch: Branch = (turn, operation.name)
        metadata = {"retriever": operation.tags.get("haystack.component.type", "")}
        if tool is not None:
            metadata[TOOL_CALL] = request_of(tool)
            branch = (tool.around.number if tool.around else -1, tool.number)
        self.recorder.step_started(
            step_id, run.id, query, tool="" if tool is None else tool.name, name=operation.name, turn=(branch,),
            metadata=metadata, followed=True, path=operation.path,
            started_ns=operation.started_ns,
        )  # fmt: skip
        around: Operation | None = operation
        while around is not None:
            around.steps, around = [*around.steps, step_id], around.around
        return step_id

    def _model(self, operation: Operation) -> None:
        run, result = operation.run, operation.result
        if not isinstance(result, Mapping):
            return
        run.answer = answer_in(result).text or run.answer
        if isinstance(replies := result.get("replies"), list):  # of a generator
            run.asks_model = True
            if (agent := operation.enclosing(AGENT)) is not None:
                agent.requests = [call for one in replies for call in getattr(one, "tool_calls", None) or ()]
            run.asked(operation.number, operation.given, operation.path)
            run.replied(operation.number, replies)

    def _end(self, operation: Operation, error: BaseException | None) -> None:
        run = operation.run
        if error is not None and not run.begun:
            self.recorder.here.calls.seen("failed operation", operation.kind)
        if not run.begun and run.asks_model:
            self.recorder.without_steps(run.id)
        run.end(run.answer, status_of(error), error, question=run.question)
