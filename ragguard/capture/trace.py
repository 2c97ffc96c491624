"""The caller's position in an OpenTelemetry trace: ids only, and only where OpenTelemetry is in use."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ragguard.records import TraceContext

if TYPE_CHECKING:
    from opentelemetry.trace import Span

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
    return TraceContext(
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        context.trace_flags.sampled,
        _is_retrieval(span),
    )


def _is_retrieval(span: object) -> bool:
    attributes = getattr(span, "attributes", None)
    if not attributes:
        return False
    kind, operation = attributes.get("openinference.span.kind"), attributes.get("gen_ai.operation.name")
    return bool(kind == "RETRIEVER" or operation in _RETRIEVALS)
