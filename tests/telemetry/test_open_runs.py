"""A run that is scored while it is open is counted and written once, at its end."""

from __future__ import annotations

from dataclasses import replace

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from support.scored_runs import two_hops
from support.traced import kept_spans

from ragguard.records import PROVISIONAL
from ragguard.telemetry.otel import OtelSink


def so_far():
    """The scored run as it stood before its end."""
    whole = two_hops()
    run = replace(whole.run, status="open", answer=None, ended_ns=0)
    scores = [replace(one, metadata={**one.metadata, PROVISIONAL: True}) for one in whole.scores]
    return replace(whole, run=run, scores=scores, failures=[])


async def test_an_open_run_gets_spans_and_counts_at_its_end_and_costs_as_they_arise():
    reader, (spans, provider) = InMemoryMetricReader(), kept_spans()
    sink = OtelSink(provider, meter_provider=MeterProvider([reader], shutdown_on_exit=False))
    await sink.submit(so_far())
    early = counted(reader)
    assert not {"ragguard.evaluation.score", "ragguard.guard.duration"} & early.keys()
    assert early["ragguard.usage.requests"] > 0
    assert spans.get_finished_spans() == ()
    await sink.submit(two_hops())
    assert counted(reader)["ragguard.evaluation.score"] == len(two_hops().scores)
    assert counted(reader)["ragguard.guard.duration"] == 1
    names = [span.name for span in spans.get_finished_spans()]
    assert (names.count("run"), names.count("retrieval search"), names.count("guard")) == (1, 2, 1)


def counted(reader):
    """Metric → the number of its measurements, of a counter its sum."""
    data = reader.get_metrics_data()
    metrics = [] if data is None else data.resource_metrics[0].scope_metrics[0].metrics
    return {
        metric.name: sum(
            getattr(point, "count", None) or getattr(point, "value", 0) for point in metric.data.data_points
        )
        for metric in metrics
    }
