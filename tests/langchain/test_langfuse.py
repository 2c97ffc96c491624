"""Langfuse beside us: its retrieval spans are found, so that scores belong on them. `make test-foreign` runs this."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.langchain_agents import SEQUENTIAL, agent, asked
from support.langchain_parts import ListRetriever

from ragguard_langchain import RagGuardCallback

langfuse = pytest.importorskip("langfuse", reason="not installed here: run `make test-foreign`")
pytestmark = pytest.mark.foreign


@pytest.mark.parametrize("ours_first", [False, True])
@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
@pytest.mark.parametrize("target", ["agent", "retriever"])
async def test_steps_stand_on_langfuses_retrieval_spans(captured, rg, target, mode, ours_first):
    from langfuse.langchain import CallbackHandler

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # Nothing listens at that address; the spans go to the exporter above.
    key = f"{target} {mode} {ours_first}"  # there is one client a key
    client = langfuse.Langfuse(
        public_key=key, secret_key="s", host="http://127.0.0.1:9", timeout=1, tracer_provider=provider
    )
    callbacks = [CallbackHandler(public_key=key), RagGuardCallback(rg)]
    config = {"callbacks": callbacks[::-1] if ours_first else callbacks}
    app, given = (agent(*SEQUENTIAL), asked()) if target == "agent" else (ListRetriever(), "hop")
    if mode == "invoke":
        app.invoke(given, config)
    else:
        await app.ainvoke(given, config)
    kinds = {
        f"{span.context.span_id:016x}": span.attributes.get("langfuse.observation.type")
        for span in exporter.get_finished_spans()
    }
    assert client is not None
    assert captured.run.steps
    for step in captured.run.steps:
        assert (kinds[step.trace.span_id], step.trace.foreign) == ("retriever", True)
