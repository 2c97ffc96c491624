"""Spans, and how they are read from OTLP, from spans of Phoenix and from observations of Langfuse.

for span in spans_in(json.loads(line)): ...           # a line of a file of traces, by whatever wrote it
for span in spans_of_protobuf(body): ...              # the body of a request to /v1/traces; needs opentelemetry-proto
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from ragguard.errors import InvalidInput, MissingDependency
from ragguard.records import new_id
from ragguard.telemetry.names import RUN_WHOLE

Data: TypeAlias = Mapping[str, Any]
SERVICE = ("openinference.project.name", "service.name")
"""The attributes of a resource that name where a span came from, the more telling one first."""
MOST_VALUES = 4_000_000
"""The most brackets and commas of one body, since sixteen megabytes of `[],` would become 400 MB of lists."""
_CAPITAL = re.compile("[A-Z]")
_FAILED = (2, "2", "STATUS_CODE_ERROR")


class SpanEvent(NamedTuple):
    """An event of a span."""

    name: str
    attributes: Mapping[str, Any]


@dataclass(slots=True)
class TraceSpan:
    """A span of a trace: ids in hexadecimal digits, times in nanoseconds, attributes as plain values."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    name: str = ""
    started_ns: int = 0
    ended_ns: int = 0
    failed: bool = False
    message: str = ""
    """The reason that the span gives for its failure."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[SpanEvent] = ()
    scope: str = ""
    """The name of the instrumentation that made the span."""
    service: str = ""
    """The name of the service or the project that the span came from."""


class PackedSpan(NamedTuple):
    """A span as a spool keeps it: whatever came in protobuf stays so until its trace is complete."""

    trace_id: str
    is_ended_root: bool
    is_whole: bool
    """True for the span of a run that holds all of the run (`RUN_WHOLE`)."""
    body: str | bytes


def is_trace_data(data: object) -> bool:
    """True for the first object of a file of traces: an OTLP request, a span of Phoenix or an observation of
    Langfuse."""
    return is_otlp(data) or (isinstance(data, Mapping) and (_is_phoenix(data) or _is_langfuse(data)))


def spans_in(data: object, broken: list[InvalidInput] | None = None) -> Iterator[TraceSpan]:
    """Yields the spans of one object of such a file; raises InvalidInput for anything else, or, with `broken`, adds
    there the error of each span of OTLP that is none."""
    if isinstance(data, Mapping) and not is_otlp(data):
        if _is_phoenix(data):
            yield phoenix_span(data)
            return
        if _is_langfuse(data):
            yield langfuse_span(data)
            return
    yield from spans_of_json(data, broken)


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


def json_body(body: bytes) -> Any:
    """Returns what a body or a line of JSON holds; raises InvalidInput for one that is none, or would not fit."""
    if (values := body.count(b"[") + body.count(b"{") + body.count(b",")) > MOST_VALUES:
        raise InvalidInput("JSON", f"{values:,} brackets and commas", f"at most {MOST_VALUES:,}")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("JSON", body[:40], f"an OTLP request in JSON ({type(error).__name__})") from error


def is_otlp(data: object) -> bool:
    """True for an OTLP request in JSON, of which the Collector's file exporter writes one a line."""
    return isinstance(data, Mapping) and isinstance(_of(data, "resourceSpans"), list)


def spans_of_json(data: object, broken: list[InvalidInput] | None = None) -> Iterator[TraceSpan]:
    """Yields the spans of an OTLP request in JSON; raises InvalidInput for anything else, or, with `broken`, adds
    there the error of each span that is none."""
    if data == {}:
        return
    if not isinstance(data, Mapping) or not isinstance(_of(data, "resourceSpans"), list):
        raise InvalidInput("OTLP", data, 'an object with "resourceSpans"')
    for resource in _mappings(_of(data, "resourceSpans")):
        service = _service(_attributes(_mapping(resource.get("resource")).get("attributes")))
        for scope in _mappings(_of(resource, "scopeSpans")):
            scope_name = str(_mapping(scope.get("scope")).get("name") or "")
            for span in _mappings(scope.get("spans")):
                try:
                    read = span_of_json(span, scope_name, service)
                except InvalidInput as error:
                    if broken is None:
                        raise
                    broken.append(error)
                else:
                    yield read


def span_of_json(span: Mapping[str, Any], scope: str = "", service: str = "") -> TraceSpan:
    """Returns a span of OTLP's JSON; raises InvalidInput where its ids or times are none."""
    status = _mapping(span.get("status"))
    try:
        return TraceSpan(
            trace_id=_id(span, "traceId", 16),
            span_id=_id(span, "spanId", 8),
            parent_id=_id(span, "parentSpanId", 8) if _of(span, "parentSpanId") else "",
            name=str(span.get("name") or ""),
            started_ns=int(_of(span, "startTimeUnixNano") or 0),
            ended_ns=int(_of(span, "endTimeUnixNano") or 0),
            failed=status.get("code") in _FAILED,
            message=str(status.get("message") or ""),
            attributes=_attributes(span.get("attributes")),
            events=[
                SpanEvent(str(event.get("name") or ""), _attributes(event.get("attributes")))
                for event in _mappings(span.get("events"))
            ],
            scope=scope,
            service=service,
        )
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidInput("span", str(span.get("name")), f"a span of OTLP's JSON; {error}") from error


def spans_of_protobuf(body: bytes) -> Iterator[TraceSpan]:
    """Yields the spans of an OTLP request in protobuf; raises InvalidInput for anything else."""
    return (_span_of_protobuf(*found) for found in _protobuf_spans(body))


def packed_protobuf(body: bytes, broken: list[InvalidInput]) -> Iterator[PackedSpan]:
    """Yields the spans of an OTLP request in protobuf as a spool keeps them; raises InvalidInput for anything else, and
    adds to `broken` the error of each span whose ids are none."""
    for span, *source in _protobuf_spans(body):
        if len(span.trace_id) not in (0, 16) or len(span.span_id) not in (0, 8):
            ids = f"traceId {span.trace_id.hex()}, spanId {span.span_id.hex()}"
            broken.append(InvalidInput("span", span.name, f"ids of 16 and 8 bytes, not {ids}"))
            continue
        span.trace_id = span.trace_id or bytes.fromhex(new_id())
        raw = span.SerializeToString()
        whole = RUN_WHOLE.encode() in raw and any(pair.key == RUN_WHOLE for pair in span.attributes)
        ended = bool(span.end_time_unix_nano and not span.parent_span_id)
        yield PackedSpan(span.trace_id.hex(), ended, whole, json.dumps(source).encode() + b"\n" + raw)


def packed(span: TraceSpan) -> PackedSpan:
    """Returns a span as a spool keeps it."""
    body = json.dumps([getattr(span, name) for name in TraceSpan.__slots__], default=str)
    ended = bool(span.ended_ns and not span.parent_id)
    return PackedSpan(span.trace_id, ended, RUN_WHOLE in span.attributes, body)


def unpacked(body: str | bytes) -> TraceSpan:
    """Returns the span in the body of a PackedSpan."""
    if isinstance(body, bytes):
        from opentelemetry.proto.trace.v1.trace_pb2 import Span

        source, _, raw = body.partition(b"\n")
        return _span_of_protobuf(Span.FromString(raw), *json.loads(source))
    span = TraceSpan(*json.loads(body))
    span.events = [SpanEvent(*event) for event in span.events]
    return span


def _protobuf_spans(body: bytes) -> Iterator[tuple[Any, str, str]]:
    """Yields each span of a request with the names of its scope and its service."""
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
        service = _service(_pairs(resource.resource.attributes))
        for scope in resource.scope_spans:
            yield from ((span, scope.scope.name, service) for span in scope.spans)


def _span_of_protobuf(span: Any, scope: str, service: str) -> TraceSpan:
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
        scope=scope,
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


def _attributes(pairs: object) -> dict[str, Any]:
    return {str(pair.get("key")): _value(pair.get("value")) for pair in _mappings(pairs)}


def _value(value: object) -> Any:
    """Returns an attribute's value as plain data; OTLP writes 64-bit integers as texts."""
    for name, inner in _mapping(value).items():
        kind = name.partition("V")[0].partition("_")[0]
        if kind == "int":
            return int(inner)
        if kind == "array":
            return [_value(item) for item in _list(_mapping(inner).get("values"))]
        if kind == "kvlist":
            return _attributes(_mapping(inner).get("values"))
        if kind in ("string", "bool", "double", "bytes"):
            return inner
    return None


def _id(span: Mapping[str, Any], name: str, size: int) -> str:
    """Returns an id in hexadecimal digits: OTLP's JSON has it so, protobuf's own JSON in base64."""
    value = _of(span, name)
    try:
        raw = bytes.fromhex(value) if len(value) == 2 * size else base64.b64decode(value, validate=True)
    except (ValueError, TypeError):
        raw = b""
    if len(raw) != size:
        raise ValueError(f"{name}: {str(value)[:40]!r} is no id of {size} bytes")
    return raw.hex()


def _service(resource: Mapping[str, Any]) -> str:
    return str(next((resource[name] for name in SERVICE if resource.get(name)), ""))


def _of(data: Mapping[str, Any], name: str) -> Any:
    """Returns a field by its name in camel case, as OTLP has it, or in snake case, as Phoenix writes it."""
    found = data.get(name)
    return data.get(_CAPITAL.sub(lambda capital: f"_{capital[0].lower()}", name)) if found is None else found


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _mappings(value: object) -> Iterator[Mapping[str, Any]]:
    return (item for item in _list(value) if isinstance(item, Mapping))
