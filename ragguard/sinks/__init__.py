"""Sinks send scores to where users read them: OpenTelemetry, Phoenix, files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragguard._lazy import lazy

if TYPE_CHECKING:
    from ragguard.records import ScoredRun as ScoredRun
    from ragguard.sinks.base import BufferingSink as BufferingSink
    from ragguard.sinks.base import Sink as Sink
    from ragguard.sinks.base import SpanSink as SpanSink
    from ragguard.sinks.jsonl import JsonlSink as JsonlSink
    from ragguard.sinks.otel import OtelSink as OtelSink
    from ragguard.sinks.phoenix import PhoenixSink as PhoenixSink

_HOMES = {
    "BufferingSink": "ragguard.sinks.base",
    "JsonlSink": "ragguard.sinks.jsonl",
    "OtelSink": "ragguard.sinks.otel",
    "PhoenixSink": "ragguard.sinks.phoenix",
    "ScoredRun": "ragguard.records",
    "Sink": "ragguard.sinks.base",
    "SpanSink": "ragguard.sinks.base",
}
"""The module in which each name is defined, by the name."""

__all__ = list(_HOMES)
__getattr__, __dir__ = lazy(__name__, _HOMES)
