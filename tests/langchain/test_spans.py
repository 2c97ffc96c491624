"""Other instrumentations beside us: their spans are found and scored. OpenLLMetry needs an environment of its own:
`make test-foreign`."""

from __future__ import annotations

import asyncio
import importlib

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import tool
from openinference.instrumentation.langchain import LangChainInstrumentor
from support.foreign import foreign
from support.langchain_agents import ANSWER, PARALLEL, QUESTION, agent, asked, search_tool
from support.langchain_parts import ListRetriever, call, documents
from support.otlp_receiver import otlp_receiver
from support.telemetry import assert_told, exporting, outline
from support.traced import instrumented

from ragguard import RagGuard, world
from ragguard.capture.splitters import paragraphs
from ragguard.telemetry.otel import OtelSink
from ragguard_langchain import RagGuardCallback, instrument, uninstrument


@pytest.fixture
def exported():
    with instrumented(LangChainInstrumentor()) as exporter:
        yield exporter


@pytest.fixture(params=["callback", "attached"])
def how(request, rg, config):
    if request.param == "callback":
        yield config
        return
    instrument(rg)
    yield None
    uninstrument()


def spans_of(exported, kind):
    return {
        f"{span.context.span_id:016x}": span
        for span in exported.get_finished_spans()
        if span.attributes["openinference.span.kind"] == kind
    }


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_the_steps_of_an_agent_stand_on_its_spans(exported, captured, how, mode):
    if mode == "invoke":
        agent(*PARALLEL).invoke(asked(), how)
    else:
        await agent(*PARALLEL).ainvoke(asked(), how)
    retrievals = spans_of(exported, "RETRIEVER")
    assert len(retrievals) == len(captured.run.steps) == 3
    for step in captured.run.steps:
        assert step.trace is not None
        assert step.trace.foreign
        assert retrievals[step.trace.span_id].attributes["input.value"] == step.query
    assert captured.run.trace is not None
    assert captured.run.trace.trace_id == captured.run.steps[0].trace.trace_id


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_bare_retrieval_stands_on_its_span(exported, captured, how, mode):
    if mode == "invoke":
        ListRetriever().invoke(QUESTION, how)
    else:
        await ListRetriever().ainvoke(QUESTION, how)
    (span_id,) = spans_of(exported, "RETRIEVER")
    (step,) = captured.run.steps
    assert (step.trace.span_id, step.trace.foreign) == (span_id, True)


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_a_tool_that_gives_documents_stands_under_its_own_span(exported, captured, rg, mode, declared):
    @tool(response_format="content_and_artifact")
    def search(query: str) -> tuple[str, list]:
        """Searches without a retriever."""
        found = documents("found", 1, query)
        return found[0].page_content, found

    handler = RagGuardCallback(rg, tools={"search": paragraphs} if declared else None)
    built = agent(call("search", query="hop"), ANSWER, tools=[search])
    if mode == "invoke":
        built.invoke(asked(), {"callbacks": [handler]})
    else:
        await built.ainvoke(asked(), {"callbacks": [handler]})
    (span_id,) = spans_of(exported, "TOOL")
    (step,) = captured.run.steps
    assert (step.trace.span_id, step.trace.foreign) == (span_id, False)


def test_once_it_is_gone_nothing_is_asked_of_it(exported, captured, config, capsys):
    LangChainInstrumentor().uninstrument()
    ListRetriever().invoke(QUESTION, config)
    assert captured.run.steps[0].trace is None
    assert capsys.readouterr().out == ""


CASE, SEARCH = world.cases(1, hops=2)[0], world.retriever(k=3)


ALONE = """\
run LangGraph
  retrieval search
    evaluate retrieval -> retrieval search
  retrieval search -> retrieval search
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
    return collector


@pytest.fixture(params=["callback", "attached"])
def attached_by(request):
    return request.param


def scored(told, attached_by, invoke):
    """Runs the agent, has it scored, gives what was captured and what was said."""
    _, traces = told
    rg = RagGuard(
        "nano",
        store=None,
        when="run",
        sinks=[OtelSink(traces, capture_content=True)],
    )
    config = {"metadata": {"ragguard_references": CASE.references}}
    if attached_by == "callback":
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


def test_alone_every_span_is_ours(told, attached_by):
    run, scores = scored(told, attached_by, lambda built, config: built.invoke(asked(CASE.question), config))
    assert outline(told[0].spans) == ALONE
    assert_told(told[0], run, scores, foreign=False)


async def beside(other, told, attached_by, mode):
    """Runs the agent beside another instrumentation."""

    def invoke(built, config):
        if mode == "invoke":
            built.invoke(asked(CASE.question), config)
        else:
            asyncio.run(built.ainvoke(asked(CASE.question), config))

    other.instrument(tracer_provider=told[1])
    try:
        return await asyncio.to_thread(scored, told, attached_by, invoke)
    finally:
        other.uninstrument()


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_beside_openinference_its_spans_are_scored(told, attached_by, mode):
    run, scores = await beside(LangChainInstrumentor(), told, attached_by, mode)
    assert outline(told[0].spans, "ragguard") == OPENINFERENCE
    assert_told(told[0], run, scores, foreign=True)


@foreign
@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_beside_openllmetry_its_spans_are_scored(told, attached_by, mode):
    """The last ones: it does not quite let go."""
    openllmetry = importlib.import_module("opentelemetry.instrumentation.langchain")
    run, scores = await beside(openllmetry.LangchainInstrumentor(), told, attached_by, mode)
    assert outline(told[0].spans, "ragguard") == OPENLLMETRY
    assert_told(told[0], run, scores, foreign=True)
