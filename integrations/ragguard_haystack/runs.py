"""Reports Haystack's operations to the recorder: the outermost pipeline or agent that retrieves is a run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ragguard.capture.calls import TOOL as ASKED_FOR
from ragguard.capture.decisions import Verdict
from ragguard.capture.guarded import guard_decided
from ragguard.capture.handle import status_of
from ragguard.capture.pipeline_run import PipelineRun
from ragguard.capture.recorder import Recorder
from ragguard.capture.splitters import Splitter
from ragguard.capture.tool_results import ToolResult
from ragguard.capture.turns import TurnKey
from ragguard.records import Passage, Status, new_id
from ragguard_haystack.operations import (
    AGENT,
    COMPONENT,
    MODEL,
    PIPELINE,
    TOOL,
    documents_in,
    embedding_in,
    is_model,
    passages_of,
    query_in,
    reply_in,
    retrieves,
    senders,
    texts_in,
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
        self.joins()
        self.started_ns = time.time_ns()
        self.embedded: dict[tuple[float, ...], str] = {}
        """The texts that were embedded in order to search, by the beginnings of their embeddings."""


class Operation:
    """One operation at work. Haystack says what it is given and what it gives while it is open."""

    def __init__(
        self, kind: str, tags: Mapping[str, Any], run: HaystackRun, around: Operation | None
    ) -> None:
        self.kind, self.tags, self.run, self.around = kind, tags, run, around
        self.name = str(tags.get("haystack.component.name") or tags.get("haystack.tool.name") or "")
        self.number = next(_numbers)
        self.given: Mapping[str, Any] = {}
        self.result: Any = None
        self.started_ns = time.time_ns()
        self.retrieved = False
        """True once anything was retrieved inside."""
        self.depths: dict[str, int] = {}
        """The number of retrievals, one fed by the other, behind each component's output of a pipeline."""

    def enclosing(self, kind: str) -> Operation | None:
        """Returns the innermost operation of a kind around this one."""
        around = self.around
        while around is not None and around.kind != kind:
            around = around.around
        return around


class Operations:
    """Reports operations as runs and steps."""

    def __init__(self, recorder: Recorder, tools: Mapping[str, Splitter], question: Question) -> None:
        self.recorder, self.tools, self.question = recorder, tools, question

    def began(self, kind: str, tags: Mapping[str, Any], around: Operation | None) -> Operation:
        """Returns the operation that begins; the outermost one begins a run, which is recorded once it retrieves."""
        run = HaystackRun(self.recorder) if around is None else around.run
        operation = Operation(kind, tags, run, around)
        if kind == PIPELINE and around is None:
            self._asked(run, tags.get("haystack.pipeline.input_data"))
        return operation

    def tagged(self, operation: Operation, key: str, value: Any) -> None:
        """Takes what an operation is given or gives."""
        if key.endswith("input"):
            operation.given = value if isinstance(value, Mapping) else {}
            if operation.kind == AGENT and operation.around is None:
                self._asked(operation.run, value)
        elif key.endswith("output"):
            operation.result = value

    def ended(self, operation: Operation, error: BaseException | None) -> None:
        """Reports an operation that has ended."""
        if operation.kind == COMPONENT:
            self._component(operation, error)
        elif operation.kind == TOOL:
            self._tool(operation, error)
        if operation.kind in (COMPONENT, MODEL) and error is None:
            self._model(operation)
        if operation.around is None:
            self._end(operation.run, error)

    def decided(self, operation: Operation, verdict: Verdict) -> None:
        """Adds a guard's decision to the retrievals whose passages it judged."""
        guard_decided(self.recorder, operation.run.id, verdict)

    def _asked(self, run: HaystackRun, data: object) -> None:
        if isinstance(data, Mapping):
            run.question = self.question(data)

    def _component(self, operation: Operation, error: BaseException | None) -> None:
        searches, pipeline = retrieves(operation.tags), operation.enclosing(PIPELINE)
        depth = 0
        if pipeline is not None:
            depth = max((pipeline.depths.get(name, 0) for name in senders(operation.tags)), default=0)
            pipeline.depths[operation.name] = depth + searches
        given, run = operation.given, operation.run
        if isinstance(text := given.get("text"), str) and isinstance(operation.result, Mapping):
            run.embedded[embedding_in(operation.result)] = text
        if not searches:
            return
        query = query_in(given) or run.embedded.get(embedding_in(given), "") or run.question
        passages = passages_of(documents_in(operation.result) or ())
        self._step(
            operation, query, passages, error, turn=(-1 if pipeline is None else pipeline.number, depth)
        )

    def _tool(self, operation: Operation, error: BaseException | None) -> None:
        self.recorder.calls.called(operation.name, self.tools)
        if operation.retrieved:  # a pipeline inside the tool has been recorded
            return
        splitter, result = self.tools.get(operation.name), operation.result
        failed = error or (str(result) if operation.tags.get("haystack.tool.error") else None)
        documents = documents_in(result if isinstance(result, Mapping) else {"documents": result})
        query = query_in(operation.given) or "; ".join(texts_in(operation.given))
        if documents is not None:
            self._step(operation, query, passages_of(documents), failed)
        elif splitter is not None:
            output = ToolResult.of(result, str(result))
            self._step(operation, query, output, failed, unpack=partial(_split, splitter))
        else:
            self.recorder.calls.seen(operation.run.id, ASKED_FOR, operation.name)

    def _step(
        self, operation: Operation, query: str, result: Any, error: BaseException | str | None,
        *, turn: tuple[int, int] | None = None, unpack: Callable[[Any], list[Passage]] | None = None,
    ) -> None:  # fmt: skip
        run, recorder, step_id = operation.run, self.recorder, new_id()
        run.begin(query)
        tool = operation if operation.kind == TOOL else operation.enclosing(TOOL)
        # Tools that an agent calls in one step of its own, and retrievers of a pipeline of which none feeds the
        # other, share a turn.
        key: TurnKey = (
            (turn, operation.name)
            if tool is None
            else (tool.around.number if tool.around else -1, tool.number)
        )
        recorder.step_started(
            step_id, run.id, query, tool="" if tool is None else tool.name, name=operation.name, turn=key,
            metadata={"retriever": operation.tags.get("haystack.component.type", "")}, followed=True,
            started_ns=operation.started_ns,
        )  # fmt: skip
        if error is not None:
            recorder.step_failed(step_id, error, "error" if isinstance(error, str) else status_of(error))
        else:
            recorder.step_ended(step_id, result, unpack=unpack)
        around: Operation | None = operation
        while around is not None:
            around.retrieved, around = True, around.around

    def _model(self, operation: Operation) -> None:
        run, result = operation.run, operation.result
        run.answer = reply_in(result) or run.answer
        if is_model(result):
            run.asks_model = True
            self.recorder.model_asked(run.id, operation.number, operation.given, texts_in)
            self.recorder.model_replied(run.id, operation.number, result["replies"], texts_in)

    def _end(self, run: HaystackRun, error: BaseException | None) -> None:
        status: Status = status_of(error)
        if type(error).__name__ == "BreakpointException":
            status = "interrupted"
        if not run.begun and run.asks_model:
            self.recorder.without_steps(run.id)
        run.end(run.answer, status, error, question=run.question)


def _split(splitter: Splitter, output: ToolResult) -> list[Passage]:
    return [Passage(item) if isinstance(item, str) else item for item in output.split(splitter)]
