"""The spans that other instrumentations make of LangChain's calls: scores belong on them, and no second ones are made.

OpenInference, OpenLLMetry and Langfuse keep theirs by the call's id, and none is to be relied on for the
context, so they are asked for. Depending on who was attached first, a call's span is there at our
start hook, at our end hook, or at both.
"""

from __future__ import annotations

import sys
import weakref
from functools import cache
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackManager

from ragguard.capture.trace import context_of
from ragguard.records import TraceContext

_OPENINFERENCE = "openinference.instrumentation.langchain"
_OPENLLMETRY = "opentelemetry.instrumentation.langchain"
_LANGFUSE = "langfuse.langchain"
_FRAMES_TO_DISPATCH = 12
"""LangChain's function that calls the handlers of an event is fewer frames away from any of our hooks."""


def span_of(call: UUID, *, retrieval: bool = False) -> TraceContext | None:
    """Returns the ids of the span that another instrumentation has open for the call, or None.

    `retrieval`: the call is a retrieval. Other instrumentations write that on a span only when it ends.
    """
    modules = sys.modules
    span: Any = None
    if _OPENINFERENCE in modules and (made := _instrumentor()).is_instrumented_by_opentelemetry:
        span = made.get_span(call)
    if span is None and _OPENLLMETRY in modules:
        span = _openllmetry(call)
    if span is None and _LANGFUSE in modules:
        span = _langfuse(call)
    if span is None:
        return None
    context = context_of(span)
    if context is not None:
        context.foreign = retrieval
    return context


@cache
def _instrumentor() -> Any:
    """Returns OpenInference's instrumentor, of which a process has one."""
    return sys.modules[_OPENINFERENCE].LangChainInstrumentor()


def _openllmetry(call: UUID) -> Any:
    """Returns the span that OpenLLMetry has open for the call, or None.

    OpenLLMetry does not give its handler out; the handler is found in the wrapper around the constructor of callback
    managers."""
    if not sys.modules[_OPENLLMETRY].LangchainInstrumentor().is_instrumented_by_opentelemetry:
        return None
    wrapped: Any = BaseCallbackManager.__init__
    while wrapped is not None:
        handler = getattr(getattr(wrapped, "_self_wrapper", None), "_callback_handler", None)
        kept = getattr(handler, "spans", {}).get(call)
        if kept is not None:
            return kept.span
        wrapped = getattr(wrapped, "__wrapped__", None)
    return None


_langfuse_handlers: weakref.WeakSet[Any] = weakref.WeakSet()


def _langfuse(call: UUID) -> Any:
    """Returns the span that Langfuse has open for the call, or None.

    Langfuse's handlers are given to each call, so LangChain's dispatch of the current event holds them beside ours."""
    frame = sys._getframe(1).f_back
    for _ in range(_FRAMES_TO_DISPATCH):
        if frame is None:
            break
        if frame.f_code.co_name in ("handle_event", "ahandle_event"):
            for handler in frame.f_locals.get("handlers") or ():
                if type(handler).__module__.startswith("langfuse."):
                    _langfuse_handlers.add(handler)
            break
        frame = frame.f_back
    for handler in list(_langfuse_handlers):
        kept = getattr(handler, "_runs", {}).get(call)
        if kept is not None:
            return getattr(kept, "_otel_span", None)
    return None
