"""Telemetry when things go wrong around it: forks, providers and collectors that are gone."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from support.child import in_child
from support.otlp_receiver import attributes_of, otlp_receiver
from support.program import run_program
from support.scored_runs import two_hops
from support.scripted_engine import ScriptedEngine

from ragguard import Passage, RagGuard
from ragguard.telemetry.otel import OtelSink
from ragguard.telemetry.otlp import ExportError, signal_url


@pytest.fixture
def collector():
    with otlp_receiver() as received:
        yield received


class Broken:
    """A sink that takes nothing."""

    async def submit(self, scored):
        raise OSError("disk full")

    async def aclose(self):
        pass


def guard(**settings):
    engine = ScriptedEngine(label=lambda text, label: 0.4)
    return RagGuard(engine, scorers=("utility",), **{"store": None, **settings})


def capture(rg, name):
    with rg.run("who?", name=name) as run:
        run.retrieved("who?", [Passage("Ada Berg founded it.", "a")])
    return run


def spans_of_runs(collector):
    """How many spans of each role each run has at the collector, by the run's name."""
    names = {span.attributes["ragguard.run.id"]: span.name for span in collector.of("CHAIN")}
    found = sorted((names[span.attributes["ragguard.run.id"]], span.role) for span in collector.spans)
    return {name: [role for other, role in found if other == name] for name in names.values()}


def measured(reader):
    """What the reader has been told, by metric."""
    data = reader.get_metrics_data()
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    found = {}
    for metric in (metric for scope in scopes for metric in scope.metrics):
        found.setdefault(metric.name, []).extend(metric.data.data_points)
    return found


ONE_RUN = ["CHAIN", "EVALUATOR", "EVALUATOR", "RETRIEVER"]


def test_a_parent_and_a_forked_worker_each_tell_of_their_own_once(collector, tmp_path):
    rg = guard(otlp=collector.url, store=tmp_path / "runs.db")
    capture(rg, "before")
    assert rg.flush(10)

    def work():
        capture(rg, "child")
        assert rg.flush(10)
        rg.close()

    in_child(work)
    capture(rg, "after")
    rg.close()
    assert spans_of_runs(collector) == {f"run {name}": ONE_RUN for name in ("before", "child", "after")}
    assert len({span.resource["service.instance.id"] for span in collector.spans}) == 2


def test_a_child_does_not_send_its_parents_numbers_again(collector):
    sink = OtelSink(otlp=collector.url)
    asyncio.run(sink.submit(two_hops()))
    in_child(lambda: asyncio.run(sink.aclose()))
    assert (collector.spans, collector.metrics) == ([], {})

    def work():
        asyncio.run(sink.submit(two_hops()))
        asyncio.run(sink.aclose())

    in_child(work)
    asyncio.run(sink.aclose())
    durations = collector.metrics["ragguard.evaluation.duration"]
    assert [point.count for point in durations] == [1, 1]
    assert len(collector.spans) == 14


@pytest.mark.parametrize("how", ["given", "address"])
def test_the_metrics_tell_what_waits_and_what_was_lost(collector, how, caplog):
    if how == "given":
        rg = guard(sinks=[OtelSink(otlp=collector.url), Broken()])
    else:
        rg = guard(otlp=collector.url, sinks=[Broken()])
    capture(rg, "one")
    assert "1 scored runs to Broken not delivered (OSError: disk full)" in str(rg.flush(10))
    rg.close()
    assert "disk full" in caplog.text
    (depth,) = collector.metrics["ragguard.queue.depth"]
    assert depth.as_int == 0
    lost = {
        attributes_of(point.attributes)["reason"]: point.as_int
        for point in collector.metrics["ragguard.dropped"]
    }
    assert lost["sink_failures"] == 1
    assert lost["spans_not_exported"] == lost["runs_dropped"] == 0


async def test_spans_for_a_dead_collector_are_counted_as_not_exported(monkeypatch):
    monkeypatch.setattr("ragguard.telemetry.otlp.EXPORT_S", 0.5)
    sink = OtelSink(otlp="http://127.0.0.1:9")
    await sink.submit(two_hops())
    with pytest.raises(ExportError, match="7 spans not exported to http://127"):
        await sink.aclose()
    await sink.aclose()


@pytest.mark.parametrize("collector_is", ["gone", "silent"])
def test_close_keeps_its_time_whatever_the_collector_does(collector_is, monkeypatch):
    monkeypatch.setattr(
        "ragguard.telemetry.otlp.EXPORT_S", 3600.0
    )  # whoever waits for an export waits for ever
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and never answers
        port = silent.getsockname()[1] if collector_is == "silent" else 9
        rg = guard(otlp=f"http://127.0.0.1:{port}")
        run = capture(rg, "one")
        report = rg.flush(1.0)
        assert not report
        assert rg.scores(run.id), "a collector must not hold up the scores"
        assert "4 spans to http://127.0.0.1" in str(report)
        report = rg.close(timeout=1.0)
        assert not report
        assert "4 spans to http://127.0.0.1" in str(report)


GLOBAL = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from ragguard import Passage, RagGuard
from ragguard.telemetry.otel import OtelSink
from support.program import run_program
from support.scripted_engine import ScriptedEngine

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
rg = RagGuard(ScriptedEngine(label=lambda text, label: 0.4), scorers=("utility",), store=None, sinks=[OtelSink()])
with rg.run("who?") as run:
    run.retrieved("who?", [Passage("Ada")])
rg.close()
print(sorted(span.name for span in exporter.get_finished_spans()))
"""


def test_an_applications_own_provider_gets_each_span_once_with_a_sink_as_without():
    done = run_program(GLOBAL)
    assert done.stdout == "['evaluate retrieval', 'evaluate run', 'retrieval', 'run']\n"
    assert run_program(GLOBAL.replace(", sinks=[OtelSink()]", "")).stdout == done.stdout


def test_each_sink_of_a_provider_has_its_own_series_of_losses(caplog):
    """A provider asks whoever made an instrument first, and would ask no other."""

    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)

    def one():
        return OtelSink(TracerProvider(shutdown_on_exit=False), meter_provider=meters)

    def lost():
        points = measured(reader)["ragguard.dropped"]
        return sum(point.value for point in points if point.attributes["reason"] == "sink_failures")

    first, second = guard(sinks=[one()]), guard(sinks=[one(), Broken()])
    capture(second, "lost")
    assert second.flush(10).undelivered
    assert lost() == 1
    second.close()
    assert lost() == 1, "what was lost stays lost when its RagGuard is closed"
    third = guard(sinks=[one(), Broken()])
    capture(third, "lost as well")
    assert third.flush(10).undelivered
    assert lost() == 2
    third.close()
    fourth = guard(sinks=[one()])
    for rg in (first, fourth):
        rg.close()
    kept = weakref.ref(fourth)
    del fourth, rg
    gc.collect()
    assert kept() is None, "no provider keeps a closed one alive"
    told = measured(reader)
    assert {point.value for point in told["ragguard.queue.depth"]} == {0}
    assert len({point.attributes["ragguard.sink"] for point in told["ragguard.dropped"]}) == 4
    meters.shutdown()


def test_a_key_in_the_query_of_otlp_is_in_no_report_and_stays_the_end_of_the_address():
    with RagGuard(
        "nano", store=None, scorers=("utility",), otlp="http://127.0.0.1:9?api_key=query-key-0815"
    ) as rg:
        with rg.run("Who founded Corwell Mills?") as run:
            run.retrieved("Who?", [Passage("Ursula Almberg founded Corwell Mills.")])
        report = str(rg.flush(20))
    assert "query-key-0815" not in report
    assert signal_url("http://c:4318?api_key=K", "traces") == "http://c:4318/v1/traces?api_key=K"
