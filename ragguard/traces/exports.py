"""Reads what other back ends write of their traces: spans of Phoenix, observations of Langfuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from ragguard.errors import InvalidInput
from ragguard.traces.otlp import is_otlp, span_of_json, spans_of_json
from ragguard.traces.span import SpanEvent, TraceSpan

Data = Mapping[str, Any]


def is_trace_data(data: object) -> bool:
    """True for the first object of a file of traces: an OTLP request, a span of Phoenix or an observation of
    Langfuse."""
    return is_otlp(data) or (isinstance(data, Mapping) and (_is_phoenix(data) or _is_langfuse(data)))


def spans_in(data: object) -> Iterator[TraceSpan]:
    """Yields the spans of one object of such a file; raises InvalidInput for anything else."""
    if isinstance(data, Mapping) and not is_otlp(data):
        if _is_phoenix(data):
            yield phoenix_span(data)
            return
        if _is_langfuse(data):
            yield langfuse_span(data)
            return
    yield from spans_of_json(data)


def phoenix_span(data: Data) -> TraceSpan:
    """Returns a span of Phoenix' REST interface, which has its attributes as one object."""
    if "context" not in data:
        return span_of_json(data)
    context = data["context"]
    return _checked(
        trace_id=context.get("trace_id"), span_id=context.get("span_id"), parent_id=data.get("parent_id"),
        name=data.get("name"), started=data.get("start_time"), ended=data.get("end_time"),
        failed=data.get("status_code") == "ERROR", message=data.get("status_message"),
        attributes={"openinference.span.kind": data.get("span_kind"), **(data.get("attributes") or {})},
        events=[
            SpanEvent(str(event.get("name") or ""), event.get("attributes") or {})
            for event in data.get("events") or ()
            if isinstance(event, Mapping)
        ],
    )  # fmt: skip


def langfuse_span(data: Data, trace: Data | None = None) -> TraceSpan:
    """Returns an observation of Langfuse's API as the span that its SDK would have sent; `trace` is its trace."""
    trace = trace or {}
    return _checked(
        trace_id=data.get("traceId"), span_id=data.get("id"),
        parent_id=None if data.get("isRootObservation") else data.get("parentObservationId"),
        name=data.get("name"), started=data.get("startTime"), ended=data.get("endTime"),
        failed=data.get("level") == "ERROR", message=data.get("statusMessage"),
        attributes={
            "langfuse.observation.type": str(data.get("type") or "").lower(),
            "langfuse.observation.input": data.get("input"), "langfuse.observation.output": data.get("output"),
            "langfuse.observation.model.name": data.get("providedModelName") or data.get("model"),
            "langfuse.observation.usage_details": data.get("usageDetails"),
            "langfuse.observation.cost_details": data.get("costDetails"),
            "langfuse.trace.input": trace.get("input"), "langfuse.trace.output": trace.get("output"),
            "session.id": trace.get("sessionId") or data.get("sessionId"),
        },
        events=[],
    )  # fmt: skip


def _is_phoenix(data: Data) -> bool:
    context = data.get("context")
    return isinstance(context, Mapping) and "span_id" in context and "trace_id" in context


def _is_langfuse(data: Data) -> bool:
    return isinstance(data.get("traceId"), str) and isinstance(data.get("startTime"), str) and "type" in data


def _checked(*, name: object, started: object, ended: object, message: object, **fields: Any) -> TraceSpan:
    if not all(isinstance(fields[one], str) and fields[one] for one in ("trace_id", "span_id")):
        raise InvalidInput("span", str(name), "an object with the ids of its trace and its own")
    fields["parent_id"] = str(fields["parent_id"] or "")
    fields["attributes"] = {key: one for key, one in fields["attributes"].items() if one is not None}
    return TraceSpan(
        name=str(name or ""),
        started_ns=_ns(started),
        ended_ns=_ns(ended),
        message=str(message or ""),
        **fields,
    )


def _ns(time: object) -> int:
    """Returns a time of ISO 8601 in nanoseconds since 1970; 0 where it is none."""
    try:
        at = datetime.fromisoformat(str(time))
    except ValueError:
        return 0
    return int(at.timestamp() * 1_000_000) * 1000
