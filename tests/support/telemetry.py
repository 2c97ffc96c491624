"""The telemetry that a scored run must give, told from its records in the words of the conventions themselves.

Nothing here is taken from `ragguard.telemetry`: a name that is wrong there is found here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from support.otlp_receiver import Received, Span

from ragguard.records import RetrievalStep, Run, Score
from ragguard.scorers.explanation import Explanation, explain


@contextmanager
def exporting(received: Received):
    """Providers of an application, which export each span and each log record at once."""
    traces = TracerProvider(shutdown_on_exit=False)
    traces.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{received.url}/v1/traces")))
    logs = LoggerProvider(shutdown_on_exit=False)
    logs.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(f"{received.url}/v1/logs")))
    yield traces, logs
    traces.shutdown()
    logs.shutdown()


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
    """Every span of ours with all that stands on it, every event and every log record, and nothing else."""
    spans = [span for span in received.spans if span.scope == "ragguard"]
    by_id = {span.span_id: span for span in received.spans}
    assert {span.trace_id for span in received.spans} == {spans[0].trace_id}
    assert all(span.dropped == 0 and span.status != 2 for span in spans)

    steps = [span for span in spans if span.role == "RETRIEVER"]
    assert [span.attributes for span in steps] == ([] if foreign else [of_step(step) for step in run.steps])
    assert [(span.start, span.end) for span in steps] == (
        [] if foreign else [(step.started_ns, step.ended_ns) for step in run.steps]
    )
    chains = [span for span in spans if span.role == "CHAIN"]
    assert [span.attributes for span in chains] == ([] if foreign else [of_run(run)])

    evaluations = {
        str(span.attributes.get("ragguard.step.id", "")): span for span in spans if span.role == "EVALUATOR"
    }
    assert len(spans) == len(steps) + len(chains) + len(evaluations)
    assert set(evaluations) == {score.step_id for score in scores} == {"", *(step.id for step in run.steps)}
    for step_id, span in evaluations.items():
        mine = [score for score in scores if score.step_id == step_id]
        step = next((step for step in run.steps if step.id == step_id), None)
        target = by_id[span.parent_id]
        assert span.links == [(target.trace_id, target.span_id)]
        assert run.ended_ns <= span.start <= span.end
        assert evaluation_of(span.attributes) == of_evaluation(mine, run, step, explain(run, scores))
        told = sorted((of_event(score) for score in mine if score.level != "passage"), key=_name)
        assert sorted((values for _, values in span.events), key=_name) == told
        assert {name for name, _ in span.events} == {"gen_ai.evaluation.result"}
        logged = [log for log in received.logs if log["span_id"] == target.span_id]
        assert sorted((log["attributes"] for log in logged), key=_name) == told
        assert {(log["event"], log["trace_id"]) for log in logged} == {
            ("gen_ai.evaluation.result", target.trace_id)
        }
    assert len(received.logs) == sum(len(span.events) for span in spans)


def of_run(run: Run) -> dict[str, Any]:
    return _said({
        "openinference.span.kind": "CHAIN", "input.value": run.question, "output.value": run.answer,
        "ragguard.run.id": run.id, "ragguard.run.name": run.name, "ragguard.run.status": "ok",
        "ragguard.run.steps": len(run.steps),
    })  # fmt: skip


def of_step(step: RetrievalStep) -> dict[str, Any]:
    passages = step.passages
    found: dict[str, Any] = {
        "openinference.span.kind": "RETRIEVER", "input.value": step.query,
        "gen_ai.operation.name": "retrieval", "gen_ai.data_source.id": step.tool,
        "gen_ai.retrieval.top_k": step.k, "gen_ai.retrieval.query.text": step.query,
        "gen_ai.retrieval.documents": json.dumps([{"id": p.id, "score": p.score} for p in passages]),
        "ragguard.run.id": step.run_id, "ragguard.step.id": step.id, "ragguard.step.index": step.index,
        "ragguard.step.turn": step.turn, "ragguard.step.status": step.status,
        "ragguard.step.query.hash": _digest(step.query),
        "ragguard.documents.total": len(passages), "ragguard.documents.exported": len(passages),
        "ragguard.documents.candidates": len(step.candidates), "ragguard.documents.places": step.places,
        "ragguard.documents.hashes": [_digest(p.text) for p in passages],
    }  # fmt: skip
    for index, passage in enumerate(passages):
        name = f"retrieval.documents.{index}.document"
        found |= {f"{name}.id": passage.id, f"{name}.content": passage.text, f"{name}.score": passage.score}
        if passage.metadata:
            found[f"{name}.metadata"] = json.dumps(dict(passage.metadata))
    return _said(found)


def of_evaluation(
    scores: Sequence[Score], run: Run, step: RetrievalStep | None, explanation: Explanation
) -> dict[str, Any]:
    """Returns the evaluation that `evaluation_of` must read from the span of a score."""
    ranked = [score for score in scores if score.level == "passage"]
    ranks = sorted({score.position for score in ranked if score.position is not None})
    passages: dict[str, Any] = {}
    for name in {score.name for score in ranked}:
        mine = [score for score in ranked if score.name == name]
        if any(score.sub_question is not None for score in mine):
            passages[name] = {f"{score.position}/{score.sub_question}": score.value for score in mine}
        elif len(mine) == len(ranks):
            passages[name] = [score.value for score in sorted(mine, key=lambda score: score.position or 0)]
        else:
            passages[name] = {str(score.position): score.value for score in mine}
    usage = [score.usage for score in scores]
    rest = _said({
        "openinference.span.kind": "EVALUATOR", "ragguard.run.id": run.id,
        "ragguard.run.cause": None if step else explanation.cause,
        "ragguard.run.explanation": None if step else explanation.text,
        "ragguard.step.id": step and step.id, "ragguard.step.index": step and step.index,
        "ragguard.passages.positions": ranks or None,
        "ragguard.usage.requests": sum(one.requests for one in usage),
        "ragguard.usage.prompt_tokens": sum(one.prompt_tokens for one in usage),
        "ragguard.usage.output_tokens": sum(one.output_tokens for one in usage),
        "ragguard.evaluation.engine": ", ".join(sorted({score.engine for score in scores if score.engine})),
        "ragguard.evaluation.prompts": ", ".join(sorted({one.prompts for one in scores if one.prompts})),
    })  # fmt: skip
    single = {
        _called(score): _said({
            "name": _called(score), "score": score.value, "label": score.label,
            "explanation": score.explanation, "annotator_kind": "LLM" if score.engine else "CODE",
            "identifier": f"{score.scorer}/{score.version}",
        })
        for score in scores if score.level != "passage"
    }  # fmt: skip
    return {"scores": single, "passages": passages, **rest}


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


def of_event(score: Score) -> dict[str, Any]:
    return _said({
        "gen_ai.evaluation.name": _called(score), "gen_ai.evaluation.score.value": score.value,
        "gen_ai.evaluation.score.label": score.label, "gen_ai.evaluation.explanation": score.explanation,
        "ragguard.evaluation.stderr": score.stderr, "ragguard.evaluation.level": score.level,
        "ragguard.evaluation.reference_source": score.reference_source,
        "ragguard.evaluation.sub_question": score.sub_question,
        "ragguard.evaluation.scorer": f"{score.scorer}/{score.version}",
        "ragguard.evaluation.engine": score.engine, "ragguard.evaluation.prompts": score.prompts,
    })  # fmt: skip


def _called(score: Score) -> str:
    return f"{score.name}.support" if score.reference_source == "answer" else score.name


def _name(event: dict[str, Any]) -> str:
    return str(event["gen_ai.evaluation.name"])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _said(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value is not None and value != ""}
