"""OpenInference beside us: its spans are found, so that scores belong on them."""

from __future__ import annotations

import pytest
from langchain_core.tools import tool
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.langchain_agents import ANSWER, PARALLEL, QUESTION, agent, asked
from support.langchain_parts import ListRetriever, call, documents

from ragguard.capture.splitters import paragraphs
from ragguard_langchain import RagGuardCallback, instrument, uninstrument


@pytest.fixture
def exported():
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    LangChainInstrumentor().instrument(tracer_provider=provider)
    yield exporter
    LangChainInstrumentor().uninstrument()


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
