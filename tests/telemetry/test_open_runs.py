"""A run that is scored while it is open is one trace, with one span a step, and is counted once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.child import in_child
from support.scored_runs import two_hops

from ragguard.records import PROVISIONAL, Advice, TraceContext
from ragguard.telemetry import otel
from ragguard.telemetry.otel import OtelSink


@pytest.fixture
def spans():
    return InMemorySpanExporter()


@pytest.fixture
def provider(spans):
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(spans))
    yield made
    made.shutdown()


def so_far(steps):
    """The scored run as it stood after so many steps."""
    whole = two_hops()
    known = {"", *(step.id for step in whole.run.steps[:steps])}
    run = replace(whole.run, steps=whole.run.steps[:steps], status="open", answer=None, ended_ns=0)
    scores = [
        replace(one, metadata={**one.metadata, PROVISIONAL: True})
        for one in whole.scores
        if one.step_id in known
    ]
    return replace(whole, run=run, scores=scores, failures=[])


def kinds(spans, kind):
    found = spans.get_finished_spans()
    return [span for span in found if span.attributes.get("openinference.span.kind") == kind]


async def test_an_open_run_is_one_trace_and_each_step_one_span(provider, spans):
    sink = OtelSink(provider)
    await sink.submit(so_far(1))
    assert (len(kinds(spans, "CHAIN")), len(kinds(spans, "RETRIEVER"))) == (0, 1)
    assert len(kinds(spans, "EVALUATOR")) == 2
    await sink.submit(so_far(2))
    await sink.submit(two_hops())
    (chain,) = kinds(spans, "CHAIN")
    assert chain.attributes["ragguard.run.status"] == "ok"
    assert [span.attributes["ragguard.step.id"] for span in kinds(spans, "RETRIEVER")] == ["s0", "s1"]
    assert len(kinds(spans, "GUARDRAIL")) == 1
    assert {span.context.trace_id for span in spans.get_finished_spans()} == {chain.context.trace_id}


async def test_a_provisional_score_says_so_and_a_final_one_does_not(provider, spans):
    sink = OtelSink(provider)
    await sink.submit(so_far(1))
    early = kinds(spans, "EVALUATOR")
    assert all(span.attributes["ragguard.evaluation.provisional"] is True for span in early)
    assert all(event.attributes["ragguard.evaluation.provisional"] for span in early for event in span.events)
    spans.clear()
    await sink.submit(two_hops())
    assert not any(
        "ragguard.evaluation.provisional" in holder.attributes
        for span in spans.get_finished_spans()
        for holder in (span, *span.events)
    )


async def test_scores_and_decisions_are_counted_once_and_costs_as_they_arise(provider):
    reader = InMemoryMetricReader()
    sink = OtelSink(provider, meter_provider=MeterProvider([reader]))
    await sink.submit(so_far(2))
    early = counted(reader)
    assert "ragguard.evaluation.score" not in early
    assert "ragguard.guard.duration" not in early
    assert early["ragguard.usage.requests"] > 0
    await sink.submit(two_hops())
    assert counted(reader)["ragguard.evaluation.score"] == len(two_hops().scores)
    assert counted(reader)["ragguard.guard.duration"] == 1


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


async def test_a_decision_that_comes_late_gets_its_span(provider, spans):
    sink = OtelSink(provider)
    early = so_far(2)
    early.run.steps[1] = replace(early.run.steps[1], decision=None)
    await sink.submit(early)
    assert kinds(spans, "GUARDRAIL") == []
    await sink.submit(two_hops())
    assert len(kinds(spans, "GUARDRAIL")) == 1


async def test_each_advice_gets_one_span(provider, spans):
    sink = OtelSink(provider)

    def advised(scored, *started):
        for step, at in zip(scored.run.steps, started, strict=True):
            step.advice = at and Advice("continue", started_ns=at)
        return scored

    await sink.submit(advised(so_far(1), 5))
    await sink.submit(advised(so_far(1), 5))
    await sink.submit(advised(so_far(1), 7))
    await sink.submit(advised(so_far(2), 7, 9))
    await sink.submit(advised(two_hops(), 7, 9))
    found = [span for span in spans.get_finished_spans() if span.name == "ragguard.advice"]
    assert [span.start_time for span in found] == [5, 7, 9]


async def test_the_span_of_the_application_may_become_known_at_the_end(provider, spans):
    sink = OtelSink(provider)
    await sink.submit(so_far(1))
    whole = two_hops()
    whole.run.trace = TraceContext("a" * 32, "b" * 16)
    await sink.submit(whole)
    assert len(kinds(spans, "CHAIN")) == 1
    (last,) = [
        span
        for span in kinds(spans, "EVALUATOR")
        if span.name == "evaluate run" and span.parent.span_id == int("b" * 16, 16)
    ]
    assert last.context.trace_id == int("a" * 32, 16)


async def test_close_of_the_sink_ends_the_spans_of_open_runs(provider, spans):
    sink = OtelSink(provider)
    await sink.submit(so_far(1))
    await sink.aclose()
    assert [span.name for span in spans.get_finished_spans()].count("run") == 1


async def test_open_run_beyond_the_bound_ends_the_oldest_span(provider, spans, monkeypatch):
    monkeypatch.setattr(otel, "KEPT", 1)
    sink = OtelSink(provider)
    for id in ("a", "b"):
        scored = so_far(1)
        await sink.submit(replace(scored, run=replace(scored.run, id=id)))
    assert [span.name for span in spans.get_finished_spans()].count("run") == 1


def test_forked_child_ends_no_span_of_a_run_that_its_parent_has_open(provider, spans):
    sink = OtelSink(provider)
    asyncio.run(sink.submit(so_far(1)))
    before = len(spans.get_finished_spans())

    def child() -> bool:
        asyncio.run(sink.aclose())
        return len(spans.get_finished_spans()) == before

    in_child(child)
    asyncio.run(sink.aclose())
    assert [span.name for span in spans.get_finished_spans()].count("run") == 1
