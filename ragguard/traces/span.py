"""A span as it is read here, whatever it came in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


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
