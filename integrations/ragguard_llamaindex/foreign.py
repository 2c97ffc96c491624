"""Finds the spans that other instrumentations make of LlamaIndex's calls: scores are attached to these, and ragguard
makes no second ones.

OpenInference, OpenLLMetry and LlamaIndex's own package each keep their spans by LlamaIndex's span id, from their start
hook to their end hook. Depending on the order of attachment, a call's span exists at our start hook or only at our end
hook, so both hooks look for it.
"""

from __future__ import annotations

from typing import Any

from llama_index_instrumentation import get_dispatcher

from ragguard.capture.trace import context_of
from ragguard.records import TraceContext

ROOT = get_dispatcher("root")


def span_of(call: str, *, retrieval: bool = False) -> TraceContext | None:
    """Returns the ids of the span that another instrumentation has open for the call, or None.

    With `retrieval` the call is a retrieval, which other instrumentations write on a span at its end, or never.
    """
    for handler in ROOT.span_handlers:
        kept = handler.open_spans.get(call) if handler.open_spans else None
        span = None if kept is None else _span_in(handler, kept, call)
        context = None if span is None else context_of(span)
        if context is not None:
            context.foreign = retrieval
            return context
    return None


def _span_in(handler: Any, kept: Any, call: str) -> Any:
    """Returns the handler's span of the call, kept under the name that OpenInference, OpenLLMetry or LlamaIndex's own
    package uses (looked up in this order); None where there is no such span."""
    span = getattr(kept, "_otel_span", None) or getattr(kept, "otel_span", None)
    return span or getattr(handler, "all_spans", {}).get(call)
