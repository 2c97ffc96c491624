"""Spans as other instrumentations write them, and runs of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ragguard import RagGuard
from ragguard.records import Run
from ragguard.traces import read
from ragguard.traces.spans import SpanEvent, TraceSpan

TRACE = "0af7651916cd43dd8448eb211c80319c"


def span(
    number: int,
    parent: int = 0,
    at: tuple[int, int] = (0, 0),
    name: str = "",
    events: Sequence[tuple[str, dict[str, Any]]] = (),
    trace: str = TRACE,
    failed: bool = False,
    **attributes: Any,
) -> TraceSpan:
    """A span by its number; attributes are written with `__` for a dot. Without times it comes after lower numbers."""
    started, ended = at if any(at) else (number * 10, number * 10 + 5)
    named = {
        key.replace("__", "."): value if isinstance(value, (str, int, float)) else json.dumps(value)
        for key, value in attributes.items()
    }
    return TraceSpan(
        trace, f"{number:016x}", f"{parent:016x}" if parent else "", name or f"span {number}", started, ended, failed,
        "it failed" if failed else "", named, [SpanEvent(*event) for event in events],
    )  # fmt: skip


def documents(*ids: str) -> dict[str, Any]:
    """The attributes of OpenInference for the documents of these ids; the text of `a` is `text of a`."""
    fields = {}
    for number, id in enumerate(ids):
        fields[f"retrieval.documents.{number}.document.id"] = id
        fields[f"retrieval.documents.{number}.document.content"] = f"text of {id}"
        fields[f"retrieval.documents.{number}.document.score"] = 1.0 - number / 10
    return fields


def only_run(*spans: TraceSpan) -> Run:
    """The one run that these spans are."""
    (found,) = read(spans)
    return found.run


def otlp_json(*spans: TraceSpan) -> dict[str, Any]:
    """The spans as a line of the Collector's file exporter."""
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
                "scopeSpans": [
                    {
                        "scope": {"name": "tests"},
                        "spans": [
                            {
                                "traceId": one.trace_id, "spanId": one.span_id, "parentSpanId": one.parent_id,
                                "name": one.name, "startTimeUnixNano": str(one.started_ns),
                                "endTimeUnixNano": str(one.ended_ns), "status": {"code": 2} if one.failed else {},
                                "attributes": [
                                    {"key": key, "value": _any_value(value)} for key, value in one.attributes.items()
                                ],
                            }
                            for one in spans
                        ],
                    }
                ],
            }
        ]
    }  # fmt: skip


def _any_value(value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def kept_spans() -> tuple[InMemorySpanExporter, TracerProvider]:
    """Returns an exporter that keeps spans, and the provider of an application that gives it each at once."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter, provider


@contextmanager
def instrumented(instrumentor: Any, **options: Any) -> Iterator[InMemorySpanExporter]:
    """The spans that an instrumentation makes in the block."""
    exporter, provider = kept_spans()
    instrumentor.instrument(tracer_provider=provider, **options)
    try:
        yield exporter
    finally:
        instrumentor.uninstrument()


def exported(exporter: InMemorySpanExporter) -> bytes:
    """The body in which OpenTelemetry's exporter would send these spans, without ragguard's own."""
    finished = exporter.get_finished_spans()
    others = [one for one in finished if one.instrumentation_scope.name != "ragguard"]
    return bytes(encode_spans(others).SerializeToString())


def numbers(run: Run, engine: Any) -> list[tuple[Any, ...]]:
    """All scores and failures of a run, without the ids of its steps; those of a turn in the order of their queries,
    since parallel retrievals begin in any order."""
    steps = sorted(run.steps, key=lambda step: (step.turn, step.query))
    run = replace(run, steps=[replace(step, index=index) for index, step in enumerate(steps)])

    async def scored() -> Any:
        async with RagGuard(engine, store=None) as rg:
            return await rg.score(run)

    scores, hops = asyncio.run(scored()), {step.id: step.index for step in run.steps}
    found = [
        (one.name, hops.get(one.step_id), one.position, one.sub_question, one.value, one.stderr)
        for one in scores
    ]
    return found + [(one.scorer, hops.get(one.step_id), one.error, one.message) for one in scores.failures]
