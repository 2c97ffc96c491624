"""Langfuse beside us: its LlamaIndex integration is OpenInference's, and its retrieval spans are found, so that scores
belong on them. `make test-foreign` runs this."""

from __future__ import annotations

import pytest
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index_instrumentation import get_dispatcher
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.llamaindex_parts import ListRetriever, Says

langfuse = pytest.importorskip("langfuse", reason="not installed here: run `make test-foreign`")
pytestmark = pytest.mark.foreign


@pytest.fixture
def exporter():
    """The spans of a Langfuse client, with OpenInference attached as Langfuse's documentation does."""
    from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # Nothing listens at that address; the spans go to the exporter above.
    client = langfuse.Langfuse(
        public_key="llama-index",
        secret_key="s",
        host="http://127.0.0.1:9",
        timeout=1,
        tracer_provider=provider,
    )
    dispatcher = get_dispatcher("root")
    spans, events = list(dispatcher.span_handlers), list(dispatcher.event_handlers)
    instrumentor = LlamaIndexInstrumentor()
    instrumentor.instrument(tracer_provider=provider, skip_dep_check=True)
    yield exporter
    instrumentor.uninstrument()
    dispatcher.span_handlers, dispatcher.event_handlers = spans, events
    assert client is not None


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("target", ["engine", "retriever"])
async def test_steps_stand_on_langfuses_retrieval_spans(exporter, recorder, captured, target, mode):
    if target == "retriever":
        ListRetriever().retrieve("hop") if mode == "sync" else await ListRetriever().aretrieve("hop")
    else:
        engine = RetrieverQueryEngine.from_args(ListRetriever(), llm=Says())
        engine.query("hop") if mode == "sync" else await engine.aquery("hop")
    kinds = {
        f"{span.context.span_id:016x}": span.attributes.get("openinference.span.kind")
        for span in exporter.get_finished_spans()
    }
    (step,) = captured.run.steps
    assert (kinds[step.trace.span_id], step.trace.foreign) == ("RETRIEVER", True)
