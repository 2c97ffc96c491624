"""The surroundings of the code at hand: a pause of capture, a retrieval, a span of OpenTelemetry where it is in use.

The first two are context variables, so they go where Python copies the context: into asyncio tasks,
`asyncio.to_thread` and LangChain's `ContextThreadPoolExecutor`, and not into a plain thread or thread pool.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ragguard.records import TraceContext

if TYPE_CHECKING:
    from opentelemetry.trace import Span


_paused: ContextVar[bool] = ContextVar("ragguard_paused", default=False)


@contextmanager
def paused() -> Iterator[None]:
    """Pauses capture inside `with ragguard.paused():`, in sync and async code, in plain code and in frameworks.

    A run that is open stays open; what it retrieves meanwhile is not recorded. A task that begins in the pause stays
    paused.
    """
    before = _paused.get()
    _paused.set(True)
    try:
        yield
    finally:
        _paused.set(before)


def is_paused() -> bool:
    """True inside `with ragguard.paused()`."""
    return _paused.get()


enclosing_step: ContextVar[tuple[object, str, str] | None] = ContextVar("ragguard_step", default=None)
"""The open retrieval that was begun by `@ragguard.retrieval`, as its recorder, run and step: what is retrieved inside
of it is a part of it."""

_RETRIEVALS = ("retrieval", "vector_db_retrieve")
"""The values of `gen_ai.operation.name` for a retrieval, by OpenTelemetry's conventions and by OpenLLMetry."""


def trace_context() -> TraceContext | None:
    """Returns the ids of the current span, if any; an application that traces has imported OpenTelemetry itself."""
    trace = sys.modules.get("opentelemetry.trace")
    # An empty context holds no span; this check is quicker than finding the current span.
    if trace is None or not sys.modules["opentelemetry.context"].get_current():
        return None
    return context_of(trace.get_current_span())


def context_of(span: Span) -> TraceContext | None:
    """Returns the ids of a span, and whether it is the span of a retrieval; None for a span without ids."""
    context = span.get_span_context()
    if not context.trace_id or not context.span_id:
        return None
    about = getattr(span, "attributes", None) or {}
    is_retrieval = (
        about.get("openinference.span.kind") == "RETRIEVER"
        or about.get("gen_ai.operation.name") in _RETRIEVALS
    )
    return TraceContext(
        f"{context.trace_id:032x}", f"{context.span_id:016x}", context.trace_flags.sampled, is_retrieval
    )
