"""A two-hop agent at a collector: alone, and beside another instrumentation whose retrieval spans are scored instead.

OpenLLMetry and LlamaIndex's own package need an environment of their own: `make test-foreign`.
"""

from __future__ import annotations

import importlib
from contextlib import contextmanager

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import RetrieverTool
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.dispatcher import instrument_tags
from support.foreign import foreign
from support.guards import guarding
from support.llamaindex_parts import ListRetriever, Says, call, scripted
from support.otlp_receiver import otlp_receiver
from support.telemetry import assert_told, exporting, outline
from support.traced import instrumented

from ragguard import RagGuard, world
from ragguard.telemetry.otel import OtelSink
from ragguard_llamaindex import DistractorPostprocessor, instrument, uninstrument
from ragguard_llamaindex.instrumentation import SpanHandler

CASE, SEARCH = world.cases(1, hops=2)[0], world.retriever(k=3)
ALONE = """\
run FunctionAgent
  retrieval search
    evaluate retrieval -> retrieval search
  retrieval search -> retrieval search
    evaluate retrieval -> retrieval search
  evaluate run -> run FunctionAgent"""
THEIRS = """\
FunctionAgent.run
  WorldSearch.aretrieve
    evaluate retrieval -> WorldSearch.aretrieve
  WorldSearch.aretrieve
    evaluate retrieval -> WorldSearch.aretrieve
  evaluate run -> FunctionAgent.run"""
OPENLLMETRY = """\
FunctionAgent.workflow
  WorldSearch.task
    evaluate retrieval -> WorldSearch.task
  WorldSearch.task
    evaluate retrieval -> WorldSearch.task
  evaluate run -> FunctionAgent.workflow"""


class WorldSearch(BaseRetriever):
    def _retrieve(self, query_bundle):
        return [
            NodeWithScore(node=TextNode(id_=p.id, text=p.text), score=p.score)
            for p in SEARCH(query_bundle.query_str)
        ]


@contextmanager
def other_instrumentation(name, provider):
    """Another instrumentation at work, and gone without a trace afterwards."""
    dispatcher = get_dispatcher("root")
    spans, events = list(dispatcher.span_handlers), list(dispatcher.event_handlers)
    if name == "llamaindex":
        # Its parts, since as a whole it sets the process's provider, once and for all.
        theirs = importlib.import_module("llama_index.observability.otel.base")
        handler = theirs.OTelCompatibleSpanHandler(tracer=provider.get_tracer("theirs"))
        dispatcher.add_span_handler(handler)
        dispatcher.add_event_handler(theirs.OTelCompatibleEventHandler(span_handler=handler))
    else:
        package = "openinference.instrumentation.llama_index" if name == "openinference" else (
            "opentelemetry.instrumentation.llamaindex"
        )  # fmt: skip
        instrumentor = importlib.import_module(package).LlamaIndexInstrumentor()
        # OpenInference asks for more than our floor, and works with it.
        instrumentor.instrument(tracer_provider=provider, skip_dep_check=True)
    yield
    if name != "llamaindex":
        instrumentor.uninstrument()
    # Ours may have been there before, and was let go of meanwhile.
    dispatcher.span_handlers = [one for one in spans if not isinstance(one, SpanHandler)]
    dispatcher.event_handlers = events


@pytest.fixture
def told():
    with otlp_receiver() as received, exporting(received) as providers:
        yield received, providers


@pytest.fixture
def rg(told):
    _, traces = told
    sink = OtelSink(traces, capture_content=True)
    rg = RagGuard("nano", store=None, sinks=[sink], when="run")
    yield rg
    rg.close()


async def scored(rg):
    """Runs the agent, has it scored, gives what was captured and what was said."""
    model = scripted(*(call("search", input=query) for query in CASE.sub_questions), CASE.references[0])
    agent = FunctionAgent(tools=[RetrieverTool.from_defaults(WorldSearch(), name="search")], llm=model)
    with instrument_tags({"ragguard_references": CASE.references}):
        await agent.run(user_msg=CASE.question)
    assert await rg.aflush(60)
    (run,) = rg.runs()
    assert [step.query for step in run.steps] == list(CASE.sub_questions)
    return run, rg.scores(run.id)


async def test_alone_every_span_is_ours(told, rg):
    instrument(rg)
    try:
        run, scores = await scored(rg)
    finally:
        uninstrument()
    assert outline(told[0].spans) == ALONE
    assert_told(told[0], run, scores, foreign=False)


async def beside(name, told, rg, first):
    """Runs the agent beside another instrumentation, attached before or after us."""
    if first == "we":
        instrument(rg)
    with other_instrumentation(name, told[1]):
        instrument(rg)
        try:
            return await scored(rg)
        finally:
            uninstrument()


@pytest.mark.parametrize("first", ["we", "they"])
async def test_beside_openinference_its_spans_are_scored(told, rg, first):
    run, scores = await beside("openinference", told, rg, first)
    assert outline(told[0].spans, "ragguard") == THEIRS
    assert_told(told[0], run, scores, foreign=True)


@foreign
@pytest.mark.parametrize("first", ["we", "they"])
@pytest.mark.parametrize(("name", "tree"), [("openllmetry", OPENLLMETRY), ("llamaindex", THEIRS)])
async def test_beside_others_their_spans_are_scored(told, rg, first, name, tree):
    run, scores = await beside(name, told, rg, first)
    assert outline(told[0].spans, "ragguard") == tree
    assert_told(told[0], run, scores, foreign=True)


def guarded_engine(guard):
    return RetrieverQueryEngine.from_args(
        ListRetriever(count=4), llm=Says(), node_postprocessors=[DistractorPostprocessor(guard)]
    )


def test_other_instrumentations_take_the_guard_for_a_reranker():
    llama_index = pytest.importorskip("openinference.instrumentation.llama_index")
    with instrumented(llama_index.LlamaIndexInstrumentor(), skip_dep_check=True) as exporter:
        guarded_engine(guarding()).query("Who founded it?")
    kinds = {span.name: span.attributes["openinference.span.kind"] for span in exporter.get_finished_spans()}
    assert kinds["DistractorPostprocessor._postprocess_nodes"] == "RERANKER"
    assert kinds["RetrieverQueryEngine.query"] == "CHAIN"
