"""Sinks send scores to where users read them: OpenTelemetry, Phoenix, files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragguard.runtime.lazy import lazy

if TYPE_CHECKING:
    from ragguard.records import ScoredRun as ScoredRun
    from ragguard.telemetry.base import BufferingSink as BufferingSink
    from ragguard.telemetry.base import Sink as Sink
    from ragguard.telemetry.base import SpanSink as SpanSink
    from ragguard.telemetry.jsonl import JsonlSink as JsonlSink
    from ragguard.telemetry.otel import OtelSink as OtelSink
    from ragguard.telemetry.phoenix import PhoenixSink as PhoenixSink

_HOMES = {
    "BufferingSink": "ragguard.telemetry.base",
    "JsonlSink": "ragguard.telemetry.jsonl",
    "OtelSink": "ragguard.telemetry.otel",
    "PhoenixSink": "ragguard.telemetry.phoenix",
    "ScoredRun": "ragguard.records",
    "Sink": "ragguard.telemetry.base",
    "SpanSink": "ragguard.telemetry.base",
}
"""The module in which each name is defined, by the name."""

__all__ = list(_HOMES)
__getattr__, __dir__ = lazy(__name__, _HOMES)
