"""Private providers that export to one OTLP/HTTP endpoint, for applications that have none of their own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from opentelemetry import trace

from ragguard._version import __version__
from ragguard.errors import InvalidInput, MissingDependency

if TYPE_CHECKING:
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

EXPORT_S = 3.0
"""How long one export may take, its retries included."""


class Exporting:
    """Three providers, one endpoint. Never registered globally; closed with its sink."""

    def __init__(self, endpoint: str, project: str) -> None:
        if not endpoint.startswith(("http://", "https://")):
            raise InvalidInput(
                "otlp", endpoint, "an http:// or https:// address, such as http://localhost:4318"
            )
        try:
            from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        except ImportError as error:
            package = "opentelemetry-exporter-otlp-proto-http"
            raise MissingDependency(package, "otlp=…", "otlp") from error
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        base = endpoint.rstrip("/")
        resource = Resource.create(
            {
                "service.name": project,
                "openinference.project.name": project,
                "telemetry.sdk.ragguard": __version__,
            }
        )
        self.traces: TracerProvider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.traces.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(f"{base}/v1/traces", timeout=EXPORT_S))
        )
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{base}/v1/metrics", timeout=EXPORT_S))
        self.metrics: MeterProvider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self.logs: LoggerProvider = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self.logs.add_log_record_processor(
            BatchLogRecordProcessor(OTLPLogExporter(f"{base}/v1/logs", timeout=EXPORT_S))
        )

    def close(self) -> None:
        """Exports what is left; a collector that is down costs one exporter's time limit, not three."""
        closing = [threading.Thread(target=each.shutdown) for each in (self.traces, self.metrics, self.logs)]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()


def configured() -> bool:
    """Whether the application has a tracer provider of its own."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
