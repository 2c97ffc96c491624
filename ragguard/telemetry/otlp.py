"""Private providers that export to one OTLP/HTTP endpoint, for applications that have none of their own."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

from ragguard._version import __version__
from ragguard.errors import InvalidInput, RagguardError
from ragguard.runtime.threads import DaemonThreads
from ragguard.telemetry.values import identifier
from ragguard.text.credentials import split_credentials
from ragguard.text.secret_filter import logger

SIGNALS = ("/v1/traces", "/v1/metrics", "/v1/logs")
EXPORT_S = 5.0
"""How long one export may take, its retries included."""


class ExportError(RagguardError):
    """Telemetry did not arrive at its collector."""


def endpoint(address: str) -> tuple[str, dict[str, str]]:
    """Returns an OTLP/HTTP address without credentials, and the header that its credentials make."""
    bare, credentials = split_credentials("otlp", address, "an http:// or https:// address")
    base = bare.rstrip("/")
    if not base.startswith(("http://", "https://")) or urlsplit(base).path.rstrip("/").endswith(SIGNALS):
        raise InvalidInput(
            "otlp", bare, "an http:// or https:// address, such as http://localhost:4318, to which /v1/traces and the "
            "like are added here",
        )  # fmt: skip
    return base, {"authorization": credentials.header} if credentials else {}


def signal_url(base: str, signal: str) -> str:
    """Returns the address to which a signal, such as `traces`, is sent; a query of the address stays its end."""
    parts = urlsplit(base)
    return parts._replace(path=f"{parts.path.rstrip('/')}/v1/{signal}").geturl()


class _OwnMetrics(OTLPMetricExporter):
    """Exports the metrics of one process: a forked child inherits what was measured, and must not send it again."""

    process = 0

    def export(self, *args: Any, **kwargs: Any) -> MetricExportResult:
        mine = os.getpid() == self.process
        return super().export(*args, **kwargs) if mine else MetricExportResult.SUCCESS


class _CountedSpans(OTLPSpanExporter):
    """Counts how many spans it delivered and could not deliver."""

    sent = lost = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = super().export(spans)
        finally:  # older exporters raise where no server listens
            if result is SpanExportResult.SUCCESS:
                self.sent += len(spans)
            else:
                self.lost += len(spans)
        return result


class _CountedBatches(BatchSpanProcessor):
    """Counts the spans that it gets: where its queue is full, it drops spans silently."""

    ended = 0

    def on_end(self, span: ReadableSpan) -> None:
        self.ended += bool(span.context and span.context.trace_flags.sampled)
        super().on_end(span)


class Exporting:
    """Providers of traces and metrics that export to one endpoint. They are never registered globally, are
    closed with their sink, and must not be used after a fork."""

    def __init__(self, address: str, project: str, *, spans_only: bool = False) -> None:
        self._base, headers = endpoint(address)
        for signal in ("trace_exporter", "metric_exporter"):
            # These loggers print what a collector answered, which may hold the credentials that it refused.
            logger(f"opentelemetry.exporter.otlp.proto.http.{signal}")
        project = identifier(project)
        resource = Resource.create(
            {
                "service.name": project,
                "service.instance.id": str(uuid.uuid4()),
                "openinference.project.name": project,
                "telemetry.sdk.ragguard": __version__,
            }
        )
        self._spans = _CountedSpans(signal_url(self._base, "traces"), headers=headers, timeout=EXPORT_S)
        self._batches = _CountedBatches(self._spans)
        self._due, self._closed = 0, False
        self.traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.traces.add_span_processor(self._batches)
        readers = []
        if not spans_only:
            exporter = _OwnMetrics(signal_url(self._base, "metrics"), headers=headers, timeout=EXPORT_S)
            exporter.process = os.getpid()
            readers.append(PeriodicExportingMetricReader(exporter))
        self.metrics = MeterProvider(readers, resource=resource, shutdown_on_exit=False)

    def lost(self) -> Mapping[str, int]:
        """Returns how many spans could not be delivered so far."""
        return {"spans_not_exported": self._spans.lost}

    def flush(self) -> None:
        """Exports the spans that wait; takes as long as the exporter's time limit for each batch."""
        if not self._closed:
            self._due = self._batches.ended
            self.traces.force_flush()

    def undelivered(self) -> Mapping[str, int]:
        """Returns how many spans that waited at the last `flush` or `close` did not arrive, by their address."""
        missing = max(self._spans.lost, self._due - self._spans.sent)
        return {f"spans to {self._base}": missing} if missing else {}

    def close(self) -> None:
        """Exports all that waits; raises where some spans did not arrive. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._due = self._batches.ended
        # An exporter that hangs must not delay the end of the process.
        threads = DaemonThreads(2, "ragguard-blocking")
        wait([threads.submit(each.shutdown) for each in (self.traces, self.metrics)])
        threads.shutdown(wait=False)
        if self._spans.lost:
            lost = f"{self._spans.lost} spans not exported to {self._base}"
            raise ExportError(f"{lost}; is a collector listening there?")
