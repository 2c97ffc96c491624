"""An OTLP/HTTP collector of our own: takes spans and metrics, shows what really arrived."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.polling import eventually


def value_of(value: Any) -> Any:
    """An OTLP AnyValue as plain Python."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return attributes_of(value.kvlist_value.values)
    return None if kind is None else getattr(value, kind)


def attributes_of(pairs: Any) -> dict[str, Any]:
    return {pair.key: value_of(pair.value) for pair in pairs}


@dataclass
class Span:
    """A span as it arrived at the collector."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    status: int
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    links: list[tuple[str, str]]
    about_links: list[dict[str, Any]]
    scope: str
    resource: dict[str, Any]
    dropped: int
    schema_url: str

    @property
    def role(self) -> str:
        """The OpenInference kind of the span."""
        return str(self.attributes.get("openinference.span.kind", ""))


@dataclass
class Received:
    """All requests that came, in the order in which they came."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    metrics: dict[str, list[Any]] = field(default_factory=dict)
    requests: int = 0

    def of(self, role: str) -> list[Span]:
        """The spans of one OpenInference kind."""
        return [span for span in self.spans if span.role == role]

    def wait(self, enough: Callable[[Received], bool], seconds: float = 10) -> Received:
        """Returns once `enough` holds; fails loudly when it never does."""
        eventually(lambda: enough(self), seconds, found=lambda: f"only {[span.name for span in self.spans]}")
        return self


@contextmanager
def otlp_receiver() -> Iterator[Received]:
    """A collector on a free loopback port, for the length of the block."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            received.requests += 1
            _TAKE[self.path](received, body)
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _spans(received: Received, body: bytes) -> None:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                received.spans.append(
                    Span(
                        span.name,
                        span.kind,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        span.status.code,
                        attributes_of(span.attributes),
                        [(event.name, attributes_of(event.attributes)) for event in span.events],
                        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                        [attributes_of(link.attributes) for link in span.links],
                        scope.scope.name,
                        attributes_of(resource.resource.attributes),
                        span.dropped_attributes_count,
                        scope.schema_url,
                    )
                )


def _metrics(received: Received, body: bytes) -> None:
    for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                data = getattr(metric, metric.WhichOneof("data"))
                received.metrics.setdefault(metric.name, []).extend(data.data_points)


_TAKE = {"/v1/traces": _spans, "/v1/metrics": _metrics}
