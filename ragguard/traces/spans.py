"""Spans as all readers of traces give them, and the plain data that they are read from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

Data: TypeAlias = Mapping[str, Any]


class SpanEvent(NamedTuple):
    """An event of a span."""

    name: str
    attributes: Data


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
    attributes: Data = field(default_factory=dict)
    events: list[SpanEvent] = field(default_factory=list)
    service: str = ""
    """The name of the service or the project that the span came from."""


def ns_of(time: object) -> int:
    """Returns a time of ISO 8601 in nanoseconds since 1970; 0 where it is none."""
    try:
        at = datetime.fromisoformat(str(time))
    except ValueError:
        return 0
    return int(at.timestamp() * 1_000_000) * 1000


def object_in(value: object) -> Data:
    """Returns an object as it is; an empty one in place of anything else."""
    return value if isinstance(value, Mapping) else {}


def objects_in(value: object) -> Iterator[Data]:
    """Yields the objects in a list; none of anything else."""
    return (item for item in (value if isinstance(value, list) else ()) if isinstance(item, Mapping))
