"""The spans that OpenInference makes of LangChain's calls: scores belong on them, and no second ones are made.

It keeps them by the call's id and attaches none to the context, so they are asked for. Depending on
who was attached first, a call's span is there at our start hook, at our end hook, or at both.
"""

from __future__ import annotations

import sys
from uuid import UUID

from ragguard.capture.trace import context_of
from ragguard.records import TraceContext


def span_of(call: UUID, *, retrieval: bool = False) -> TraceContext | None:
    """Where OpenInference's span of that call is; None where it is not in use, or has none (yet, or any more).

    That a span is one of a `retrieval` is written on it at its end only, so the caller says so.
    """
    module = sys.modules.get("openinference.instrumentation.langchain")
    if module is None:
        return None
    instrumentor = module.LangChainInstrumentor()
    if not instrumentor.is_instrumented_by_opentelemetry:
        return None
    span = instrumentor.get_span(call)
    context = None if span is None else context_of(span)
    if context is not None:
        context.foreign = retrieval
    return context
