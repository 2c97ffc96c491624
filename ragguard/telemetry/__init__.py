"""Sinks, which send scores to where users read them: OpenTelemetry, Phoenix, files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragguard.runtime import lazy

if TYPE_CHECKING:
    from ragguard.records import ScoredRun as ScoredRun
    from ragguard.telemetry.back_ends import PhoenixSink as PhoenixSink
    from ragguard.telemetry.otel import OtelSink as OtelSink
    from ragguard.telemetry.sink import BufferingSink as BufferingSink
    from ragguard.telemetry.sink import JsonlSink as JsonlSink
    from ragguard.telemetry.sink import Sink as Sink
    from ragguard.telemetry.sink import SpanSink as SpanSink

_HOMES = {
    "BufferingSink": "ragguard.telemetry.sink",
    "JsonlSink": "ragguard.telemetry.sink",
    "OtelSink": "ragguard.telemetry.otel",
    "PhoenixSink": "ragguard.telemetry.back_ends",
    "ScoredRun": "ragguard.records",
    "Sink": "ragguard.telemetry.sink",
    "SpanSink": "ragguard.telemetry.sink",
}
"""The module in which each name is defined, by the name."""

__all__ = list(_HOMES)
__getattr__, __dir__ = lazy(__name__, _HOMES)
