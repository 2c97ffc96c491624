"""From LlamaIndex to scores, through a whole RagGuard."""

from __future__ import annotations

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.tools import QueryEngineTool
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.guards import guarding
from support.llamaindex_parts import ListRetriever, Says, call, scripted
from support.scripted_engine import ScriptedEngine

from ragguard import RagGuard
from ragguard_llamaindex import DistractorPostprocessor, instrument, uninstrument


@pytest.fixture
def rg(tmp_path):
    rg = RagGuard(
        engine=ScriptedEngine(label=lambda text, label: 0.4), scorers=("utility",), store=tmp_path / "runs.db"
    )
    instrument(rg)
    yield rg
    uninstrument()
    rg.close()


async def test_an_agents_hops_are_scored_in_the_run_that_the_user_opened(rg):
    engine = RetrieverQueryEngine.from_args(ListRetriever(), llm=Says(text="Nordlys"))
    tool = QueryEngineTool.from_defaults(engine, name="ask")
    model = scripted(call("ask", input="firm in Oslo"), call("ask", input="founder of Nordlys"), "Ada Berg")
    async with rg.run("Who founded the firm in Oslo?", references=["Ada Berg"]) as run:
        await FunctionAgent(tools=[tool], llm=model).run(user_msg="Who founded it?")
    assert await rg.aflush(timeout=30)
    (got,) = rg.runs()
    assert (got.id, got.question, got.references, got.answer) == (
        run.id, "Who founded the firm in Oslo?", ["Ada Berg"], "Ada Berg",
    )  # fmt: skip
    assert [(step.query, step.tool) for step in got.steps] == [
        ("firm in Oslo", "ask"),
        ("founder of Nordlys", "ask"),
    ]
    udcg = {score.step_id for score in rg.scores(run.id) if score.name == "udcg"}
    assert udcg == {step.id for step in got.steps}


def guarded_engine(guard):
    return RetrieverQueryEngine.from_args(
        ListRetriever(count=4), llm=Says(), node_postprocessors=[DistractorPostprocessor(guard)]
    )


def test_other_instrumentations_take_the_guard_for_a_reranker():
    llama_index = pytest.importorskip("openinference.instrumentation.llama_index")
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    peer = llama_index.LlamaIndexInstrumentor()
    peer.instrument(tracer_provider=provider, skip_dep_check=True)
    try:
        guarded_engine(guarding()).query("Who founded it?")
    finally:
        peer.uninstrument()
    kinds = {span.name: span.attributes["openinference.span.kind"] for span in exporter.get_finished_spans()}
    assert kinds["DistractorPostprocessor._postprocess_nodes"] == "RERANKER"
    assert kinds["RetrieverQueryEngine.query"] == "CHAIN"
