"""The spans, events and metrics that fixed runs become, by name, with their attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from support.fixed_runs import START, fixed_runs
from support.golden import compare
from support.traced import kept_spans

from ragguard.telemetry.otel import OtelSink


@pytest.mark.parametrize("content", [False, True], ids=["spans", "spans-with-content"])
async def test_spans_and_their_attributes(content, request):
    exporter, provider = kept_spans()
    meter = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    sink = OtelSink(provider, meter_provider=meter, capture_content=content)
    for scored in fixed_runs():
        await sink.submit(scored)
    await sink.aclose()
    compare(request.node.callspec.id, outlines(exporter.get_finished_spans()))
    provider.shutdown()
    meter.shutdown()


async def test_metrics_and_their_attributes():
    provider, meter = TracerProvider(shutdown_on_exit=False), InMemoryMetricReader()
    meters = MeterProvider([meter], shutdown_on_exit=False)
    sink = OtelSink(provider, meter_provider=meters)
    for scored in fixed_runs():
        await sink.submit(scored)
    data = meter.get_metrics_data()
    assert data is not None
    found = {
        metric.name: {
            "unit": metric.unit,
            "description": metric.description,
            "points": sorted(
                (
                    [dict(point.attributes), getattr(point, "sum", getattr(point, "value", None))]
                    for point in metric.data.data_points
                ),
                key=repr,
            ),
        }
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    compare("otel-metrics", found)
    await sink.aclose()
    provider.shutdown()
    meters.shutdown()


def outlines(spans: Sequence[ReadableSpan]) -> list[dict[str, Any]]:
    """Each span as plain data; parents and links by the names of their spans, times from the runs' beginning."""
    names = {span.context.span_id: span.name for span in spans}

    def named(context: Any) -> str:
        return names.get(context.span_id, f"outside: {context.span_id:016x}") if context else ""

    found = [
        {
            "name": span.name,
            "kind": span.kind.name,
            "status": span.status.status_code.name,
            "scope": span.instrumentation_scope.name,
            "parent": named(span.parent),
            "links": [named(link.context) for link in span.links],
            "began_ms": (span.start_time - START) / 1e6,
            "ended_ms": (span.end_time - START) / 1e6,
            "attributes": plain(span.attributes),
            "events": [{"name": event.name, "attributes": plain(event.attributes)} for event in span.events],
        }
        for span in spans
    ]
    return sorted(found, key=repr)


def plain(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Attributes with lists in place of tuples."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in (attributes or {}).items()
    }
