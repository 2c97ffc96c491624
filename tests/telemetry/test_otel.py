"""Spans as a collector receives them: who is whose child, what is linked, what stands on them."""

import json
import math

import numpy as np
import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from support.otlp_receiver import attributes_of, otlp_receiver
from support.scored_runs import two_hops

from ragguard.errors import InvalidInput
from ragguard.records import Failure, Lead, LeadSource, Passage, Score, TraceContext
from ragguard.telemetry import names
from ragguard.telemetry.otel import OtelSink
from ragguard.telemetry.sink import Sink


@pytest.fixture
def collector():
    with otlp_receiver() as received:
        yield received


@pytest.fixture
def provider(collector):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{collector.url}/v1/traces")))
    yield provider
    provider.shutdown()


async def test_no_text_leaves_unless_asked_for(collector, provider, monkeypatch):
    monkeypatch.delenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", raising=False)
    await OtelSink(provider).submit(two_hops())
    assert "secret" not in repr([(span.attributes, span.events) for span in collector.spans])
    retrieval = collector.of("RETRIEVER")[0].attributes
    assert retrieval["retrieval.documents.0.document.id"] == "doc-0"
    assert retrieval["retrieval.documents.0.document.score"] == 0.5
    assert len(retrieval["ragguard.documents.hashes"]) == 3


@pytest.mark.parametrize(
    ("mode", "shown"),
    [
        ("NO_CONTENT", False),
        ("SPAN_ONLY", True),
        ("EVENT_ONLY", False),
        ("span_and_event", True),
        ("true", True),
    ],
)
async def test_the_standard_variable_opens_what_it_says(collector, provider, monkeypatch, mode, shown):
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", mode)
    await OtelSink(provider).submit(two_hops())
    found = repr([(span.attributes, span.events) for span in collector.spans])
    for text in ("secret text 0.0", "secret query 1", "secret question", "secret reason"):
        assert (text in found) is shown


async def test_openinference_can_hide_what_was_opened(collector, provider, monkeypatch):
    monkeypatch.setenv("OPENINFERENCE_HIDE_INPUTS", "true")
    monkeypatch.setenv("OPENINFERENCE_HIDE_OUTPUTS", "true")
    await OtelSink(provider, capture_content=True).submit(two_hops())
    spans = repr([span.attributes for span in collector.spans])
    assert not any(f"secret {what}" in spans for what in ("question", "query", "text", "answer"))


def application_span(provider, sampled=True):
    """A span the application made, ended long before the scores come."""
    context = provider.get_tracer("app").start_span("app").get_span_context()
    return TraceContext(f"{context.trace_id:032x}", f"{context.span_id:016x}", sampled)


async def test_inside_an_application_its_spans_are_the_parents(collector, provider):
    scored, root = two_hops(), application_span(provider)
    scored.run.trace = root
    for step in scored.run.steps:
        step.trace = root
    await OtelSink(provider).submit(scored)
    assert collector.of("CHAIN") == []
    assert {span.parent_id for span in collector.of("RETRIEVER")} == {root.span_id}
    assert collector.of("EVALUATOR")[0].links == [(root.trace_id, root.span_id)]


@pytest.mark.parametrize("content", [False, True])
async def test_a_hop_is_linked_to_the_hop_that_led_to_it(collector, provider, content):
    scored = two_hops()
    first, second = scored.run.steps
    second.led_by = [Lead("Zangard Bank", [LeadSource(first.id, 2), LeadSource("gone", 1)])]
    await OtelSink(provider, capture_content=content).submit(scored)
    retrievals, evaluations = collector.of("RETRIEVER"), collector.of("EVALUATOR")[1:]
    # An evaluation has one link, to what it is about.
    assert [span.links for span in evaluations] == [[(span.trace_id, span.span_id)] for span in retrievals]
    assert evaluations[1].attributes["ragguard.led_by.steps"] == [first.id, "gone"]
    assert [span.links for span in retrievals] == [[], [(retrievals[0].trace_id, retrievals[0].span_id)]]
    about = retrievals[1].about_links[0]
    assert about["ragguard.led_by.positions"] == [2]
    assert about.get("ragguard.led_by.words") == (["Zangard Bank"] if content else None)


async def test_a_foreign_retrieval_span_is_scored_instead_of_a_second_one(collector, provider):
    scored = two_hops()
    for step in scored.run.steps:
        step.trace = application_span(provider)
        step.trace.foreign = True
    await OtelSink(provider).submit(scored)
    assert collector.of("RETRIEVER") == []
    theirs = [step.trace.span_id for step in scored.run.steps]
    assert [span.parent_id for span in collector.of("EVALUATOR")[1:]] == theirs
    assert collector.of("GUARDRAIL")[0].parent_id == theirs[1]


async def test_run_of_an_unsampled_trace_gets_no_span(collector, provider):
    scored = two_hops()
    scored.run.trace = application_span(provider, sampled=False)
    for step in scored.run.steps:
        step.trace = scored.run.trace
    await OtelSink(provider).submit(scored)
    assert collector.spans == []


@pytest.mark.parametrize("content", [False, True])
async def test_sixty_documents_never_push_out_what_names_the_span(collector, provider, content):
    await OtelSink(provider, capture_content=content).submit(two_hops(60))
    for span in collector.of("RETRIEVER"):
        assert span.dropped == 0
        assert len(span.attributes) <= 128
        assert span.attributes["gen_ai.operation.name"] == "retrieval"
        assert span.attributes["ragguard.documents.total"] == 60
        exported = span.attributes["ragguard.documents.exported"]
        assert f"retrieval.documents.{exported - 1}.document.id" in span.attributes
        assert f"retrieval.documents.{exported}.document.id" not in span.attributes


async def test_sixty_scores_stay_within_the_attribute_limit(collector, provider):
    scored = two_hops()
    scored.scores = [Score(f"metric_{i}", i / 100, "step", "r", "s0", label="x") for i in range(60)]
    await OtelSink(provider).submit(scored)
    evaluation = next(span for span in collector.of("EVALUATOR") if "ragguard.step.id" in span.attributes)
    assert evaluation.dropped == 0
    assert len(evaluation.attributes) <= 128
    assert len(evaluation.events) == 60
    assert evaluation.attributes["ragguard.telemetry.skipped"] > 0


async def test_odd_values_arrive_or_are_left_out_and_counted(collector, provider):
    scored = two_hops()
    odd = [
        Passage("x" * 1_000_000, 7, np.float32(0.25), {"n": np.int64(3), "deep": {"a": [1]}}),
        Passage("lone \ud800 surrogate", "\udfff", math.nan),
        Passage("", "", math.inf, {"self": object()}),
    ]
    scored.run.steps[0].passages = odd
    scored.scores = [
        Score("udcg", np.float64(0.5), "step", "r", "s0"),
        Score("t", math.inf, "step", "r", "s0"),
    ]
    await OtelSink(provider, capture_content=True).submit(scored)
    retrieval = collector.of("RETRIEVER")[0].attributes
    assert retrieval["retrieval.documents.0.document.id"] == "7"
    assert retrieval["retrieval.documents.0.document.score"] == 0.25
    assert retrieval["retrieval.documents.0.document.content"].endswith("[1000000 characters]")
    assert len(retrieval["retrieval.documents.0.document.content"]) <= 4096
    assert json.loads(retrieval["retrieval.documents.0.document.metadata"])["deep"] == {"a": [1]}
    assert retrieval["retrieval.documents.1.document.content"] == "lone ? surrogate"
    assert "retrieval.documents.1.document.score" not in retrieval
    assert json.loads(retrieval["retrieval.documents.0.document.metadata"])["n"] == 3
    assert [one["score"] for one in json.loads(retrieval["gen_ai.retrieval.documents"])] == [0.25, None, None]
    assert retrieval["ragguard.telemetry.skipped"] == 2
    evaluation = collector.of("EVALUATOR")[0].attributes
    assert evaluation["evaluations.0.evaluation.score"] == 0.5
    assert "evaluations.1.evaluation.score" not in evaluation
    assert evaluation["ragguard.telemetry.skipped"] == 1


async def test_surrogates_and_odd_types_anywhere_never_stop_an_export(collector):
    """Spans, events and metrics: whatever a user's names, errors and ids are made of."""
    odd = "lone \ud800 surrogate"
    scored = two_hops(id=odd, name=odd, question=odd, answer=odd, metadata={"session_id": 7})
    first, second = scored.run.steps
    first.id, first.query, first.tool, first.status, first.error = odd, odd, odd, "error", f"{odd}: x"
    first.passages = [Passage(odd * 65_536, np.int64(3), np.float32(0.5), {odd: odd, 4: {5}})]
    second.decision.status, second.decision.reason, second.decision.elapsed_ms = "error", odd, np.float64(2)
    made = {"scorer": odd, "version": odd, "engine": odd, "prompts": odd, "label": odd, "explanation": odd}
    scored.scores = [
        Score(odd, np.float32(0.25), "step", odd, odd, stderr=math.nan, **made),
        Score("utility", np.int64(1), "passage", odd, odd, 3, np.int64(1), **made),
        Score("answerability", 2.0, "passage", odd, odd, 3, 1, sub_question=np.int64(0), **made),
        Score(odd, 0.5, "passage", odd, odd, 3, 1, **made),
    ]
    scored.failures = [Failure(odd, odd, odd, False, odd, second.id)]
    sink = OtelSink(otlp=collector.url, capture_content=True, project=odd)
    await sink.submit(scored)
    await sink.aclose()
    (chain,), (retrieval, _), (told, failed) = map(collector.of, ("CHAIN", "RETRIEVER", "EVALUATOR"))
    assert (chain.name, chain.attributes["session.id"]) == ("run lone ? surrogate", "7")
    assert (retrieval.name, retrieval.status) == ("retrieval lone ? surrogate", 2)
    assert retrieval.attributes["retrieval.documents.0.document.id"] == "3"
    assert retrieval.attributes["retrieval.documents.0.document.content"].endswith("[1048576 characters]")
    assert told.attributes["evaluations.0.evaluation.score"] == 0.25
    assert told.attributes["ragguard.passages.utility"] == [1]
    assert told.attributes["ragguard.passages.lone ? surrogate"] == [0.5]
    assert "ragguard.evaluation.stderr" not in told.events[0][1]
    assert failed.events[0][1]["error.type"] == "lone ? surrogate"
    (failures,) = collector.metrics["ragguard.evaluation.failures"]
    assert attributes_of(failures.attributes)["scorer"] == "lone ? surrogate"


async def test_otlp_address_alone_exports_spans_and_metrics(collector):
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    sink = OtelSink(otlp=collector.url, project="mine")
    assert isinstance(sink, Sink)
    scored = two_hops()
    scored.run.cause = "misled"
    await sink.submit(scored)
    await sink.aclose()
    (counted,) = collector.metrics["ragguard.runs"]
    assert attributes_of(counted.attributes) == {"ragguard.run.cause": "misled"}
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    assert len(collector.spans) == 7
    assert collector.spans[0].resource["openinference.project.name"] == "mine"
    assert {"ragguard.evaluation.score", "ragguard.evaluation.failures"} <= set(collector.metrics)
    utilities = [
        point
        for point in collector.metrics["ragguard.evaluation.score"]
        if attributes_of(point.attributes)["gen_ai.evaluation.name"] == "utility"
    ]
    signed = {attributes_of(p.attributes)["ragguard.evaluation.sign"]: p.sum for p in utilities}
    assert signed == {"positive": pytest.approx(0.9), "negative": pytest.approx(1.2)}
    (late,) = collector.metrics["ragguard.evaluation.duration"]
    assert late.sum == pytest.approx(0.03)


async def test_every_name_that_arrives_is_declared_once_and_explained(collector, provider):
    await OtelSink(provider, capture_content=True, experiment="a").submit(two_hops())
    every = [name for group in names.ATTRIBUTES.values() for name in group]
    declared = {name for name in every if name.meaning and name.carriers}
    assert len(every) == len(declared)
    indexed = ("retrieval.documents.", "evaluations.", "trace.evaluations.", "ragguard.passages.")
    for span in collector.spans:
        for name in {*span.attributes, *(key for _, values in span.events for key in values)}:
            assert name in declared or name.startswith(indexed), name


@pytest.mark.parametrize(
    "settings",
    [
        {"otlp": "localhost:4318"},
        {"otlp": "http://localhost:4318/v1/traces/"},
        {"capture_content": "SOMETIMES"},
    ],
)
def test_settings_that_cannot_be_right_are_refused(settings):
    with pytest.raises(InvalidInput, match="allowed"):
        OtelSink(**settings)


async def test_scores_of_the_run_are_evaluations_of_the_trace_with_what_stands_behind_them(
    collector, provider
):
    await OtelSink(provider).submit(two_hops(name="support bot"))
    of_run, of_step, _ = collector.of("EVALUATOR")
    assert of_run.attributes["trace.evaluations.0.evaluation.name"] == "coverage_total"
    assert not any(name.startswith("evaluations.") for name in of_run.attributes)
    assert of_step.attributes["evaluations.0.evaluation.name"] == "udcg"
    assert json.loads(of_step.attributes["evaluations.0.evaluation.metadata"]) == {
        "stderr": 0.02, "level": "step", "scorer": "utility", "engine": "model/first_token"
    }  # fmt: skip
    assert collector.of("CHAIN")[0].attributes["gen_ai.agent.name"] == "support bot"
    assert {span.schema_url for span in collector.spans} == {names.SCHEMA_URL}


@pytest.mark.parametrize("drafts", ["", "http,gen_ai_latest_experimental"])
async def test_a_guards_decision_is_an_event_where_drafts_are_wanted(
    collector, provider, monkeypatch, drafts
):
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", drafts)
    await OtelSink(provider).submit(two_hops())
    (guard,) = collector.of("GUARDRAIL")
    decided = {
        "gen_ai.guardrail.component.name": "ragguard", "gen_ai.guardrail.source": "retrieval",
        "gen_ai.guardrail.result.type": "status", "gen_ai.guardrail.result.value": "pruned",
        "gen_ai.guardrail.result.reason": "UtilityThreshold",
    }  # fmt: skip
    assert guard.events == ([("gen_ai.guardrail.result", decided)] if drafts else [])


@pytest.mark.parametrize("own", [True, False])
async def test_the_sides_of_a_comparison_are_experiments_with_the_same_items(collector, provider, own):
    for name in ("before", "after"):
        scored = two_hops()
        if not own:
            scored.run.trace = application_span(provider)
        await OtelSink(provider, experiment=name, capture_content=True).submit(scored)
    spans = [span for span in collector.spans if span.role]
    found = [
        {
            key.removeprefix("langfuse.experiment."): value
            for key, value in span.attributes.items()
            if key.startswith("langfuse.")
        }
        for span in spans
    ]
    assert [one["name"] for one in found] == ["before"] * (len(found) // 2) + ["after"] * (len(found) // 2)
    assert len({one["item.id"] for one in found}) == 1
    assert len({one["id"] for one in found}) == 2
    roots = {one["item.root_observation_id"] for one in found}
    assert len(roots) == 2
    if own:
        assert roots == {span.span_id for span in collector.of("CHAIN")}
        assert json.loads(found[0]["item.expected_output"]) == ["x"]
