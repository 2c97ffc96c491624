"""Finds the spans that other instrumentations make of LangChain's calls: scores are attached to these, and ragguard
makes no second ones.

OpenInference, OpenLLMetry and Langfuse keep their spans by the call's id, and do not always put them into the context,
so each library is asked for the span. Depending on who was attached first, a call's span is there at our start hook, at
our end hook, or at both.
"""

from __future__ import annotations

import sys
import weakref
from functools import cache
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.callbacks.manager import ahandle_event, handle_event

from ragguard.capture.trace import context_of
from ragguard.records import TraceContext

_OPENINFERENCE = "openinference.instrumentation.langchain"
_OPENLLMETRY = "opentelemetry.instrumentation.langchain"
_LANGFUSE = "langfuse.langchain"
_DISPATCH, _ASYNC_DISPATCH = handle_event.__code__, ahandle_event.__code__
_FRAMES_TO_DISPATCH = 12
"""The most frames between a hook of ours and LangChain's function that calls the handlers of an event."""


def span_of(call: UUID, *, retrieval: bool = False, ends: bool = False) -> TraceContext | None:
    """Returns the ids of the span that another instrumentation has open for the call, or None.

    With `retrieval` the call is a retrieval, which other instrumentations write on a span only at its end. With `ends`
    the call ends now, so that the handlers around it are known from its start.
    """
    modules = sys.modules
    span: Any = None
    if _OPENINFERENCE in modules and (made := _instrumentor()).is_instrumented_by_opentelemetry:
        span = made.get_span(call)
    if span is None and _OPENLLMETRY in modules:
        span = _openllmetry(call)
    if span is None and _LANGFUSE in modules:
        span = _langfuse(call, ends)
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

    OpenLLMetry does not give its handler out; the wrapper around the constructor of callback managers has it."""
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


def _langfuse(call: UUID, ends: bool) -> Any:
    """Returns the span that Langfuse has open for the call, or None."""
    if not ends:
        _note_langfuse()
    for handler in list(_langfuse_handlers) if _langfuse_handlers else ():
        kept = getattr(handler, "_runs", {}).get(call)
        if kept is not None:
            return getattr(kept, "_otel_span", None)
    return None


def _note_langfuse() -> None:
    """Notes Langfuse's handlers among those of the event at hand: LangChain's dispatch of the event holds them beside
    ours, as they are given to each call."""
    frame = sys._getframe(3).f_back
    for _ in range(_FRAMES_TO_DISPATCH):
        if frame is None:
            return
        if frame.f_code is _DISPATCH or frame.f_code is _ASYNC_DISPATCH:
            for handler in frame.f_locals.get("handlers") or ():
                if type(handler).__module__.startswith("langfuse."):
                    _langfuse_handlers.add(handler)
            return
        frame = frame.f_back
