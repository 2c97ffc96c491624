"""Private providers that export to one OTLP/HTTP endpoint, for applications that have none of their own."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from ragguard._version import __version__
from ragguard.errors import InvalidInput, MissingDependency, RagguardError
from ragguard.runtime.threads import DaemonThreads
from ragguard.telemetry.values import identifier
from ragguard.text.credentials import split_credentials
from ragguard.text.secret_filter import logger

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

SIGNALS = ("/v1/traces", "/v1/metrics", "/v1/logs")
EXPORT_S = 5.0
"""How long one export may take, its retries included."""


class ExportError(RagguardError):
    """Telemetry did not arrive at its collector."""


def endpoint(address: str) -> tuple[str, dict[str, str]]:
    """Returns an OTLP/HTTP address without credentials, and the header that its credentials make."""
    bare, credentials = split_credentials("otlp", address, "an http:// or https:// address")
    base = bare.rstrip("/")
    if not base.startswith(("http://", "https://")) or base.endswith(SIGNALS):
        raise InvalidInput(
            "otlp", bare, "an http:// or https:// address, such as http://localhost:4318, to which /v1/traces and the "
            "like are added here",
        )  # fmt: skip
    return base, {"authorization": credentials.header} if credentials else {}


class Exporting:
    """Providers of traces and metrics that export to one endpoint. They are never registered globally, are
    closed with their sink, and must not be used after a fork."""

    def __init__(self, address: str, project: str, *, spans_only: bool = False) -> None:
        base, headers = endpoint(address)
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        except ImportError as error:
            package = "opentelemetry-exporter-otlp-proto-http"
            raise MissingDependency(package, "otlp=…", "otlp") from error
        for signal in ("trace_exporter", "metric_exporter"):
            # These loggers print what a collector answered, which may hold the credentials that it refused.
            logger(f"opentelemetry.exporter.otlp.proto.http.{signal}")
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import MetricExportResult, PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

        self._base = base
        project, process = identifier(project), os.getpid()

        class MetricsOfThisProcess(OTLPMetricExporter):
            """Metrics of one process: a forked child inherits what was measured, and must not send it again."""

            def export(self, *args: Any, **kwargs: Any) -> MetricExportResult:
                mine = os.getpid() == process
                return super().export(*args, **kwargs) if mine else MetricExportResult.SUCCESS

        class CountedSpans(OTLPSpanExporter):
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

        self._spans: Any = CountedSpans(f"{base}/v1/traces", headers=headers, timeout=EXPORT_S)
        resource = Resource.create(
            {
                "service.name": project,
                "service.instance.id": str(uuid.uuid4()),
                "openinference.project.name": project,
                "telemetry.sdk.ragguard": __version__,
            }
        )

        class EndedSpans(SpanProcessor):
            """Counts the spans that the batch processor gets; it drops spans silently where its queue is full."""

            count = 0

            def on_end(self, span: ReadableSpan) -> None:
                self.count += bool(span.context and span.context.trace_flags.sampled)

            def force_flush(self, timeout_millis: int = 30_000) -> bool:
                """Returns at once. Without this method, older SDKs flush no processor after this one."""
                return True

        self._ended: Any = EndedSpans()
        self._due, self._closed = 0, False
        self.traces: TracerProvider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.traces.add_span_processor(self._ended)
        self.traces.add_span_processor(BatchSpanProcessor(self._spans))
        readers = []
        if not spans_only:
            exporter = MetricsOfThisProcess(f"{base}/v1/metrics", headers=headers, timeout=EXPORT_S)
            readers.append(PeriodicExportingMetricReader(exporter))
        self.metrics: MeterProvider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)

    def lost(self) -> Mapping[str, int]:
        """Returns how many spans could not be delivered so far."""
        return {"spans_not_exported": self._spans.lost}

    def flush(self) -> None:
        """Exports the spans that wait; takes as long as the exporter's time limit for each batch."""
        if not self._closed:
            self._due = self._ended.count
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
        self._due = self._ended.count
        # An exporter that hangs must not delay the end of the process.
        threads = DaemonThreads(2, "ragguard-blocking")
        wait([threads.submit(each.shutdown) for each in (self.traces, self.metrics)])
        threads.shutdown(wait=False)
        if self._spans.lost:
            lost = f"{self._spans.lost} spans not exported to {self._base}"
            raise ExportError(f"{lost}; is a collector listening there?")


def configured() -> bool:
    """Returns True where the application has a tracer provider of its own."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
