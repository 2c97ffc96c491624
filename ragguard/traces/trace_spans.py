"""Reads spans from OTLP, from spans of Phoenix, from observations of Langfuse and from trajectories.

for span in packed_json(line, broken): ...        # a line of a file of traces, by whatever wrote it
for span in packed_protobuf(body, broken): ...    # the body of a request to /v1/traces; needs opentelemetry-proto
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ragguard.errors import InvalidInput, MissingDependency
from ragguard.records import new_id
from ragguard.storage.files.jsonl import json_of_line
from ragguard.telemetry.names import RUN_WHOLE
from ragguard.traces.annotations import of_langfuse, of_phoenix
from ragguard.traces.spans import Data, SpanEvent, TraceSpan, ns_of, object_in, objects_in
from ragguard.traces.trajectories import is_trajectory, spans_of_trajectory

SERVICE = ("openinference.project.name", "service.name")
"""The attributes of a resource that name where a span came from, the more telling one first."""
_CAPITAL = re.compile("[A-Z]")
_FAILED = (2, "2", "STATUS_CODE_ERROR")


class PackedSpan(NamedTuple):
    """A span as a spool keeps it: whatever came in protobuf stays so until its trace is complete."""

    trace_id: str
    is_ended_root: bool
    is_whole: bool
    """True for the span of a run that holds all of the run (`RUN_WHOLE`)."""
    body: str | bytes


def is_trace_data(data: object) -> bool:
    """True for the first object of a file of traces: an OTLP request, a span of Phoenix, an observation of Langfuse or
    a trajectory in ATIF."""
    return _reader_of(data) is not None


def packed_json(body: bytes, broken: list[InvalidInput]) -> Iterator[PackedSpan]:
    """Yields the spans of a body of JSON as a spool keeps them; see `packed_data`."""
    yield from packed_data(json_of_line(body), broken)


def packed_data(data: object, broken: list[InvalidInput]) -> Iterator[PackedSpan]:
    """Yields the spans of an object of such a file as a spool keeps them; raises InvalidInput for anything else.

    The error of each span of OTLP that is none is added to `broken`.
    """
    reader = _reader_of(data)
    if reader is not None:
        yield from map(packed, reader(data, broken))
    elif data != {}:
        raise InvalidInput("OTLP", data, 'an object with "resourceSpans"')


def _reader_of(data: object) -> Callable[[Any, list[InvalidInput]], Iterable[TraceSpan]] | None:
    """Returns what reads the spans of an object; None for an object of another format."""
    if not isinstance(data, Mapping):
        return None
    if isinstance(_of(data, "resourceSpans"), list):
        return _spans_of_otlp
    if any(isinstance(_of(data, name), list) for name in ("resourceMetrics", "resourceLogs")):
        return lambda data, _: ()  # a Collector writes these into the same file
    if is_trajectory(data):
        return lambda data, _: spans_of_trajectory(data)
    context = data.get("context")
    if isinstance(context, Mapping) and "span_id" in context and "trace_id" in context:
        return lambda data, _: [phoenix_span(data)]
    if isinstance(data.get("traceId"), str) and isinstance(data.get("startTime"), str) and "type" in data:
        return lambda data, _: [langfuse_span(data)]
    return None


def phoenix_span(data: Data) -> TraceSpan:
    """Returns a span of Phoenix' REST interface, which has its attributes as one object."""
    events = [
        SpanEvent(str(one.get("name") or ""), one.get("attributes") or {})
        for one in objects_in(data.get("events"))
    ]
    return TraceSpan(
        trace_id=_id(data["context"], "trace_id"),
        span_id=_id(data["context"], "span_id"),
        parent_id=str(data.get("parent_id") or ""),
        name=str(data.get("name") or ""),
        started_ns=ns_of(data.get("start_time")),
        ended_ns=ns_of(data.get("end_time")),
        failed=data.get("status_code") == "ERROR",
        message=str(data.get("status_message") or ""),
        attributes={"openinference.span.kind": data.get("span_kind"), **(data.get("attributes") or {})},
        events=[*events, *of_phoenix(data.get("annotations"))],
    )


def langfuse_span(data: Data) -> TraceSpan:
    """Returns an observation of Langfuse's API as the span that its SDK would have sent."""
    return TraceSpan(
        trace_id=_id(data, "traceId"),
        span_id=_id(data, "id"),
        parent_id="" if data.get("isRootObservation") else str(data.get("parentObservationId") or ""),
        name=str(data.get("name") or ""),
        started_ns=ns_of(data.get("startTime")),
        ended_ns=ns_of(data.get("endTime")),
        failed=data.get("level") == "ERROR",
        message=str(data.get("statusMessage") or ""),
        attributes={
            "langfuse.observation.type": data.get("type"),
            "langfuse.observation.input": data.get("input"),
            "langfuse.observation.output": data.get("output"),
            "langfuse.observation.model.name": data.get("providedModelName") or data.get("model"),
            "langfuse.observation.usage_details": data.get("usageDetails"),
            "langfuse.observation.cost_details": data.get("costDetails"),
            "session.id": data.get("sessionId"),
        },
        events=[*of_langfuse(data.get("scores"))],
    )


def _id(data: Data, name: str) -> str:
    if not isinstance(data.get(name), str) or not data[name]:
        raise InvalidInput(name, data.get(name), "an id")
    return str(data[name])


def _spans_of_otlp(data: Data, broken: list[InvalidInput]) -> Iterator[TraceSpan]:
    for resource in objects_in(_of(data, "resourceSpans")):
        service = _service(_attributes(object_in(resource.get("resource")).get("attributes")))
        for scope in objects_in(_of(resource, "scopeSpans")):
            for span in objects_in(scope.get("spans")):
                try:
                    read = _span_of_otlp(span, service)
                except (ValueError, TypeError, OverflowError, RecursionError) as error:
                    allowed = f"a span of OTLP's JSON; {error}"
                    broken.append(InvalidInput("span", str(span.get("name")), allowed))
                else:
                    yield read


def _span_of_otlp(span: Data, service: str) -> TraceSpan:
    status = object_in(span.get("status"))
    return TraceSpan(
        trace_id=_hexadecimal(span, "traceId", 16),
        span_id=_hexadecimal(span, "spanId", 8),
        parent_id=_hexadecimal(span, "parentSpanId", 8) if _of(span, "parentSpanId") else "",
        name=str(span.get("name") or ""),
        started_ns=int(_of(span, "startTimeUnixNano") or 0),
        ended_ns=int(_of(span, "endTimeUnixNano") or 0),
        failed=status.get("code") in _FAILED,
        message=str(status.get("message") or ""),
        attributes=_attributes(span.get("attributes")),
        events=[
            SpanEvent(str(event.get("name") or ""), _attributes(event.get("attributes")))
            for event in objects_in(span.get("events"))
        ],
        service=service,
    )


def _attributes(pairs: object) -> dict[str, Any]:
    return {str(pair.get("key")): _value(pair.get("value")) for pair in objects_in(pairs)}


def _value(value: object) -> Any:
    """Returns an attribute's value as plain data; OTLP writes 64-bit integers as texts."""
    for name, inner in object_in(value).items():
        kind = name.partition("V")[0].partition("_")[0]
        if kind == "int":
            return int(inner)
        if kind == "array":
            return [_value(item) for item in object_in(inner).get("values") or ()]
        if kind == "kvlist":
            return _attributes(object_in(inner).get("values"))
        if kind in ("string", "bool", "double", "bytes"):
            return inner
    return None


def _hexadecimal(span: Data, name: str, size: int) -> str:
    value = str(_of(span, name))
    if len(value) != 2 * size or not re.fullmatch("[0-9a-fA-F]+", value):
        raise ValueError(f"{name}: {value[:40]!r} is no id of {size} bytes")
    return value.lower()


def _of(data: Data, name: str) -> Any:
    """Returns a field by its name in camel case, as OTLP has it, or in snake case, as Phoenix writes it."""
    found = data.get(name)
    return data.get(_CAPITAL.sub(lambda capital: f"_{capital[0].lower()}", name)) if found is None else found


def packed_protobuf(body: bytes, broken: list[InvalidInput]) -> Iterator[PackedSpan]:
    """Yields the spans of an OTLP request in protobuf as a spool keeps them; raises InvalidInput for anything else, and
    adds to `broken` the error of each span whose ids are none."""
    try:
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError as error:
        raise MissingDependency("opentelemetry-proto", "OTLP in protobuf", "serve") from error
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise InvalidInput("body", body[:40], "an OTLP request in protobuf") from error
    for resource in request.resource_spans:
        service = json.dumps(_service(_pairs(resource.resource.attributes))).encode()
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            if len(span.trace_id) not in (0, 16) or len(span.span_id) not in (0, 8):
                ids = f"traceId {span.trace_id.hex()}, spanId {span.span_id.hex()}"
                broken.append(InvalidInput("span", span.name, f"ids of 16 and 8 bytes, not {ids}"))
                continue
            span.trace_id = span.trace_id or bytes.fromhex(new_id())
            raw = span.SerializeToString()
            whole = RUN_WHOLE.encode() in raw and any(pair.key == RUN_WHOLE for pair in span.attributes)
            ended = bool(span.end_time_unix_nano and not span.parent_span_id)
            yield PackedSpan(span.trace_id.hex(), ended, whole, service + b"\n" + raw)


def packed(span: TraceSpan) -> PackedSpan:
    """Returns a span as a spool keeps it."""
    body = json.dumps([getattr(span, name) for name in TraceSpan.__slots__], default=str)
    ended = bool(span.ended_ns and not span.parent_id)
    return PackedSpan(span.trace_id, ended, RUN_WHOLE in span.attributes, body)


def unpacked(body: str | bytes) -> TraceSpan:
    """Returns the span in the body of a PackedSpan."""
    if isinstance(body, bytes):
        from opentelemetry.proto.trace.v1.trace_pb2 import Span

        service, _, raw = body.partition(b"\n")
        return _span_of_protobuf(Span.FromString(raw), json.loads(service))
    span = TraceSpan(*json.loads(body))
    span.events = [SpanEvent(*event) for event in span.events]
    return span


def _span_of_protobuf(span: Any, service: str) -> TraceSpan:
    return TraceSpan(
        trace_id=span.trace_id.hex() or new_id(),
        span_id=span.span_id.hex() or new_id()[:16],
        parent_id=span.parent_span_id.hex(),
        name=span.name,
        started_ns=span.start_time_unix_nano,
        ended_ns=span.end_time_unix_nano,
        failed=span.status.code == _FAILED[0],
        message=span.status.message,
        attributes=_pairs(span.attributes),
        events=[SpanEvent(event.name, _pairs(event.attributes)) for event in span.events],
        service=service,
    )


def _pairs(pairs: Any) -> dict[str, Any]:
    return {pair.key: _plain(pair.value) for pair in pairs}


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return _pairs(value.kvlist_value.values)
    if kind == "bytes_value":
        return str(value.bytes_value)
    return None if kind is None else getattr(value, kind)


def _service(resource: Data) -> str:
    return str(next((resource[name] for name in SERVICE if resource.get(name)), ""))
