"""A tracer before Haystack's own: captures each operation and passes it on to the tracer that was set before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from haystack.tracing.tracer import Span, Tracer, enable_tracing, tracer

from ragguard.capture.decisions import Verdict
from ragguard.capture.declarations import Tools, checked_tools
from ragguard.capture.recorder import recorder_of
from ragguard.capture.shapes import question_in
from ragguard.errors import InvalidInput
from ragguard_haystack.operations import Operation, Operations, Question

if TYPE_CHECKING:
    from ragguard import RagGuard

_lock = threading.Lock()
_current: ContextVar[CapturedSpan | None] = ContextVar("ragguard_haystack", default=None)


class CapturedSpan(Span):
    """A span of the tracer that was there, whose tags are read on their way."""

    def __init__(self, span: Span, operation: Operation | None, runs: Operations) -> None:
        self._span, self.operation, self.runs = span, operation, runs

    def set_tag(self, key: str, value: Any) -> None:
        """Hands a tag on."""
        if self.operation is not None and key == "haystack.tool.error":
            self.operation.tags = {**self.operation.tags, key: value}
        self._span.set_tag(key, value)

    def set_content_tag(self, key: str, value: Any) -> None:
        """Reads what the operation is given or gives, and hands it on: the other tracer has its own rules for it."""
        if self.operation is not None:
            self.runs.tagged(self.operation, key, value)
        self._span.set_content_tag(key, value)

    def raw_span(self) -> Any:
        """Returns the span of the other tracer."""
        return self._span.raw_span()

    def get_correlation_data_for_logs(self) -> dict[str, Any]:
        """Returns what the other tracer adds to logs."""
        return self._span.get_correlation_data_for_logs()


class CaptureTracer(Tracer):
    """Captures each operation and hands it on to the tracer that was there before."""

    def __init__(self, runs: Operations, inner: Tracer) -> None:
        self.runs, self.inner = runs, inner

    @contextmanager
    def trace(
        self, operation_name: str, tags: dict[str, Any] | None = None, parent_span: Span | None = None
    ) -> Iterator[Span]:
        """Opens the other tracer's span and follows the operation until it ends."""
        above = parent_span if isinstance(parent_span, CapturedSpan) else _current.get()
        handed = parent_span._span if isinstance(parent_span, CapturedSpan) else parent_span
        with self.inner.trace(operation_name, tags=tags, parent_span=handed) as span:
            operation = self.runs.began(
                operation_name, tags or {}, None if above is None else above.operation
            )
            captured = CapturedSpan(span, operation, self.runs)
            token, error = _current.set(captured), None
            try:
                yield captured
            except BaseException as raised:
                error = raised
                raise
            finally:
                if operation is not None:
                    self.runs.ended(operation, error)
                with suppress(ValueError):  # an asynchronous generator that is closed in another task
                    _current.reset(token)

    def current_span(self) -> Span | None:
        """Returns the innermost span around the caller."""
        return _current.get() or self.inner.current_span()


def instrument(rg: RagGuard, *, tools: Tools | None = None, question: Question | None = None) -> None:
    """Captures every Haystack pipeline and agent of this process that retrieves, from now on.

    Calling it again changes what is attached: one RagGuard at a time. A tracer that is enabled already goes on seeing
    everything; one that is enabled later takes this one's place. References belong to `with rg.run(...)` around the
    pipeline, which joins that run. A component that is run by itself is not traced by Haystack, and so not captured.

    Args:
        rg: The RagGuard that gets the runs.
        tools: Tools that retrieve and return text or JSON: name → splitter (`ragguard.splitters` has the usual
            ones), or a list of the names of those that give search results, MCP's among them. `auto`: every tool is
            a retrieval whose output has the shape of a search result; it is read in the hook, and a log line says
            once which tools it took. Tools that give documents, and retrievers inside tools, need no declaration.
        question: A function from what the outermost pipeline or agent is given to its question. None: its first
            input called query, question or text, else the user's last message.
    """
    recorder, declared = recorder_of(rg), checked_tools(tools)
    if question is not None and not callable(question):
        raise InvalidInput("question", question, "a function from what a pipeline is given to its question")
    recorder.here.calls.declared.update(declared)
    with _lock:
        before = tracer.actual_tracer
        inner = before.inner if isinstance(before, CaptureTracer) else before
        enable_tracing(CaptureTracer(Operations(recorder, declared, question or question_in), inner))


def uninstrument() -> None:
    """Stops capturing operations that begin from now on; the tracer that was there before goes on."""
    with _lock:
        if isinstance(attached := tracer.actual_tracer, CaptureTracer):
            tracer.actual_tracer = attached.inner


def decided(verdict: Verdict) -> None:
    """Adds a guard's decision to the retrievals before the innermost captured operation around the caller."""
    span = _current.get()
    if span is not None and span.operation is not None:
        span.runs.decided(span.operation, verdict)
