"""A two-hop agent at a collector: alone, and beside another instrumentation whose retrieval spans are scored instead.

OpenLLMetry needs an environment of its own: `make test-foreign`.
"""

from __future__ import annotations

import asyncio
import importlib

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from openinference.instrumentation.langchain import LangChainInstrumentor
from support.foreign import foreign
from support.langchain_agents import agent, asked, search_tool
from support.langchain_parts import call
from support.otlp_receiver import otlp_receiver
from support.telemetry import assert_told, exporting, outline

from ragguard import RagGuard, world
from ragguard.telemetry.otel import OtelSink
from ragguard_langchain import RagGuardCallback, instrument, uninstrument

CASE, SEARCH = world.cases(1, hops=2)[0], world.retriever(k=3)
ALONE = """\
run LangGraph
  retrieval search
    evaluate retrieval -> retrieval search
  retrieval search
    evaluate retrieval -> retrieval search
  evaluate run -> run LangGraph"""
OPENINFERENCE = """\
LangGraph
  WorldSearch
    evaluate retrieval -> WorldSearch
  WorldSearch
    evaluate retrieval -> WorldSearch
  evaluate run -> LangGraph"""
OPENLLMETRY = """\
LangGraph.workflow
  vector_db_retrieve WorldSearch
    evaluate retrieval -> vector_db_retrieve WorldSearch
  vector_db_retrieve WorldSearch
    evaluate retrieval -> vector_db_retrieve WorldSearch
  evaluate run -> LangGraph.workflow"""


class WorldSearch(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(p.text, id=p.id, metadata={"score": p.score}) for p in SEARCH(query)]


@pytest.fixture(scope="module")
def collector():
    """One for all tests: OpenLLMetry goes on with the first provider it was ever given."""
    with otlp_receiver() as received, exporting(received) as providers:
        yield received, providers


@pytest.fixture
def told(collector):
    received, _ = collector
    received.spans.clear()
    received.logs.clear()
    return collector


@pytest.fixture(params=["callback", "attached"])
def how(request):
    return request.param


def scored(told, how, invoke):
    """Runs the agent, has it scored, gives what was captured and what was said."""
    _, (traces, logs) = told
    rg = RagGuard(
        "nano",
        store=None,
        when="run",
        sinks=[OtelSink(traces, logger_provider=logs, log_records=True, capture_content=True)],
    )
    config = {"metadata": {"ragguard_references": CASE.references}}
    if how == "callback":
        config["callbacks"] = [RagGuardCallback(rg)]
    else:
        instrument(rg)
    try:
        turns = [call("search", query=query) for query in CASE.sub_questions]
        invoke(agent(*turns, CASE.references[0], tools=[search_tool(WorldSearch())]), config)
    finally:
        uninstrument()
    assert rg.flush(60)
    (run,) = rg.runs()
    scores = rg.scores(run.id)
    rg.close()
    assert [step.query for step in run.steps] == list(CASE.sub_questions)
    return run, scores


def test_alone_every_span_is_ours(told, how):
    run, scores = scored(told, how, lambda built, config: built.invoke(asked(CASE.question), config))
    assert outline(told[0].spans) == ALONE
    assert_told(told[0], run, scores, foreign=False)


async def beside(other, told, how, mode):
    """Runs the agent beside another instrumentation."""

    def invoke(built, config):
        if mode == "invoke":
            built.invoke(asked(CASE.question), config)
        else:
            asyncio.run(built.ainvoke(asked(CASE.question), config))

    other.instrument(tracer_provider=told[1][0])
    try:
        return await asyncio.to_thread(scored, told, how, invoke)
    finally:
        other.uninstrument()


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_beside_openinference_its_spans_are_scored(told, how, mode):
    run, scores = await beside(LangChainInstrumentor(), told, how, mode)
    assert outline(told[0].spans, "ragguard") == OPENINFERENCE
    assert_told(told[0], run, scores, foreign=True)


@foreign
@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_beside_openllmetry_its_spans_are_scored(told, how, mode):
    """The last ones: it does not quite let go."""
    openllmetry = importlib.import_module("opentelemetry.instrumentation.langchain")
    run, scores = await beside(openllmetry.LangchainInstrumentor(), told, how, mode)
    assert outline(told[0].spans, "ragguard") == OPENLLMETRY
    assert_told(told[0], run, scores, foreign=True)
