"""Finds the spans that other instrumentations make of LangChain's calls, so that scores are attached to those spans and
ragguard makes no second ones.

OpenInference and OpenLLMetry keep their spans by the call's id, and do not always put them into the context, so each
library is asked for the span. Depending on who was attached first, a call's span is there at our start hook, at
our end hook, or at both.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackManager

from ragguard.capture.recorder import context_of
from ragguard.records import TraceContext

_OPENINFERENCE = "openinference.instrumentation.langchain"
_OPENLLMETRY = "opentelemetry.instrumentation.langchain"


def span_of(call: UUID, *, retrieval: bool = False) -> TraceContext | None:
    """Returns the ids of the span that another instrumentation has open for the call, or None.

    With `retrieval` the call is a retrieval, which other instrumentations write on a span only at its end.
    """
    modules = sys.modules
    span: Any = None
    if _OPENINFERENCE in modules and (made := _instrumentor()).is_instrumented_by_opentelemetry:
        span = made.get_span(call)
    if span is None and _OPENLLMETRY in modules:
        span = _openllmetry(call)
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
