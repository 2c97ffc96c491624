"""The telemetry that a scored run must give: which spans and events, where, and with what on them.

The golden files hold the attributes themselves, in the words of the conventions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from support.otlp_receiver import Received, Span

from ragguard.facts.leads import with_leads
from ragguard.facts.run_view import RunView
from ragguard.records import Run, Score
from ragguard.telemetry.attributes import Writer
from ragguard.telemetry.values import Content

WRITER = Writer(Content.chosen(True))


@contextmanager
def exporting(received: Received):
    """The provider of an application, which exports each span at once."""
    traces = TracerProvider(shutdown_on_exit=False)
    traces.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{received.url}/v1/traces")))
    yield traces
    traces.shutdown()


def outline(spans: Sequence[Span], scope: str = "") -> str:
    """The spans as a tree, in the order they began, each with the name of what it is linked to.

    With a `scope`, those of that instrumentation, and of the others what they stand on directly.
    """
    by_id = {span.span_id: span for span in spans}
    wanted = {span.span_id for span in spans if span.scope == scope or not scope}
    wanted |= {by_id[one].parent_id for one in set(wanted)} & by_id.keys()
    lines = []

    def write(parent: str, depth: int) -> None:
        below = [span for span in spans if (span.parent_id if span.parent_id in by_id else "") == parent]
        for span in sorted(below, key=lambda span: (span.start, span.span_id)):
            inside = depth
            if span.span_id in wanted:
                links = "".join(f" -> {by_id[one].name if one in by_id else '?'}" for _, one in span.links)
                lines.append("  " * depth + span.name + links)
                inside += 1
            write(span.span_id, inside)

    write("", 0)
    return "\n".join(lines)


def assert_told(received: Received, run: Run, scores: Sequence[Score], *, foreign: bool) -> None:
    """Every span of ours with all that stands on it, every event, and nothing else."""
    spans = [span for span in received.spans if span.scope == "ragguard"]
    by_id = {span.span_id: span for span in received.spans}
    assert {span.trace_id for span in received.spans} == {spans[0].trace_id}
    assert all(span.dropped == 0 and span.status != 2 for span in spans)

    steps = [span for span in spans if span.role == "RETRIEVER"]
    assert [span.attributes for span in steps] == (
        [] if foreign else [WRITER.step(step).values for step in run.steps]
    )
    assert [(span.start, span.end) for span in steps] == (
        [] if foreign else [(step.started_ns, step.ended_ns) for step in run.steps]
    )
    chains = [span for span in spans if span.role == "CHAIN"]
    assert [span.attributes for span in chains] == ([] if foreign else [WRITER.run(run).values])

    evaluations = {
        str(span.attributes.get("ragguard.step.id", "")): span for span in spans if span.role == "EVALUATOR"
    }
    assert len(spans) == len(steps) + len(chains) + len(evaluations)
    assert set(evaluations) == {score.step_id for score in scores} == {"", *(step.id for step in run.steps)}
    read = with_leads(run)
    contexts = {
        step_id: (by_id[span.parent_id].trace_id, span.parent_id) for step_id, span in evaluations.items()
    }
    for step_id, span in evaluations.items():
        mine = [score for score in scores if score.step_id == step_id]
        step = next((step for step in read.steps if step.id == step_id), None)
        assert span.links == [contexts[step_id]]
        if step and not foreign:
            earlier = dict.fromkeys(id for lead in step.led_by or () for id in lead.steps)
            own = by_id[span.parent_id]
            assert own.links == [contexts[one] for one in earlier]
            assert own.about_links == [WRITER.lead(step, one).values for one in earlier]
        assert run.ended_ns <= span.start <= span.end
        expected = WRITER.evaluation(mine, RunView(run, scores), step)
        assert evaluation_of(span.attributes) == evaluation_of(expected.values)
        told = sorted((WRITER.event(score)[1] for score in mine if score.level != "passage"), key=_name)
        assert sorted((values for _, values in span.events), key=_name) == told
        assert {name for name, _ in span.events} == {"gen_ai.evaluation.result"}


def evaluation_of(attributes: dict[str, Any]) -> dict[str, Any]:
    """An EVALUATOR span's attributes with its scores by name, whatever their order was."""
    indexed: dict[str, dict[str, Any]] = {}
    passages: dict[str, Any] = {}
    rest = {}
    for name, value in attributes.items():
        if name.startswith("evaluations."):
            _, index, _, field = name.split(".")
            indexed.setdefault(index, {})[field] = value
        elif name.startswith("ragguard.passages.") and name != "ragguard.passages.positions":
            score = name.removeprefix("ragguard.passages.")
            passages[score] = json.loads(value) if isinstance(value, str) else value
        else:
            rest[name] = value
    return {"scores": {one["name"]: one for one in indexed.values()}, "passages": passages, **rest}


def _name(event: dict[str, Any]) -> str:
    return str(event["gen_ai.evaluation.name"])
