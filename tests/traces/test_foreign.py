"""Instrumentations other than OpenInference's beside our hooks, and a real MCP server over stdio."""

import sys
from importlib import import_module
from textwrap import dedent

import pytest
from support.foreign import foreign
from support.langchain_agents import SEQUENTIAL, agent, asked
from support.traced import exported, instrumented, numbers

import ragguard_langchain
import ragguard_langchain.demo
import ragguard_llamaindex
import ragguard_llamaindex.demo
from ragguard import RagGuard, world
from ragguard.traces import read

QUESTION = "Who founded the firm based in Oslo?"


def ask_agent():
    agent(*SEQUENTIAL).invoke(asked())


def ask_engine():
    from llama_index.core.query_engine import RetrieverQueryEngine
    from support import llamaindex_parts

    engine = RetrieverQueryEngine.from_args(llamaindex_parts.ListRetriever(), llm=llamaindex_parts.Says())
    engine.query(QUESTION)


def ask_demo(framework):
    """Asks the agent of the demo, whose tool hands on what it found as an artifact, or is a retriever's."""
    case, search = world.cases(1, hops=2)[0], world.retriever(k=3)
    plan, read_first = (lambda _: case.sub_questions), (lambda _, lines: lines[0].split()[0])
    framework.demo.agent(plan, search, read_first, None)(case.question)


def of_step(step, left_out):
    id, text = "id" not in left_out, "text" not in left_out
    found = [(one.id if id else "", one.text if text else "", one.score) for one in step.passages]
    return step.query, step.turn, step.tool, found


@foreign
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("framework", "work", "module", "name", "left_out"), [
    (ragguard_langchain, ask_agent, "langchain", "LangchainInstrumentor", {"id"}),
    (ragguard_llamaindex, ask_engine, "llamaindex", "LlamaIndexInstrumentor", set()),
    (ragguard_langchain, ask_agent, "genai.langchain", "LangChainInstrumentor", {"text", "artifact"}),
    (ragguard_llamaindex, ask_engine, "genai.llama_index", "LlamaIndexInstrumentor", {"text", "answer"}),
], ids=["OpenLLMetry's LangChain", "OpenLLMetry's LlamaIndex", "GenAI's LangChain", "GenAI's LlamaIndex"])  # fmt: skip
def test_their_spans_give_the_steps_and_scores_of_our_hooks(
    framework, work, module, name, left_out, monkeypatch
):
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")
    instrumentor = getattr(import_module(f"opentelemetry.instrumentation.{module}"), name)()
    with RagGuard("nano", store=None, scorers=[]) as rg, instrumented(instrumentor) as exporter:
        framework.instrument(rg)
        try:
            work()
            ask_demo(framework)
        finally:
            framework.uninstrument()
        rg.flush(10)
        captured, demo = rg.runs()
        found, *traced = read(exported(exporter))
    assert [of_step(one, left_out) for one in found.run.steps] == [
        of_step(one, left_out) for one in captured.steps
    ]
    assert found.run.question == captured.question
    assert found.run.answer == (None if "answer" in left_out else captured.answer)
    assert any("without their texts" in remark for remark in found.remarks) == ("text" in left_out)
    assert all(one.run.question == demo.question for one in traced)
    scores = [numbers(one.run, "nano") for one in traced]
    if "text" not in left_out:
        assert scores == [numbers(demo, "nano")]
    elif "artifact" in left_out:
        assert scores == []
    else:
        assert [one[0] for one in scores[0] if one[2] != "NoText"] == ["answer_coverage"]


SERVER = dedent(
    """
    from mcp.server.fastmcp import FastMCP

    server = FastMCP("notes")

    @server.tool()
    def search(query: str) -> list[dict[str, str]]:
        "Searches the notes."
        text = f"Nordvik is based in Oslo ({query})"
        return [{"id": "n1", "title": "Oslo", "text": text}, {"id": "n2", "text": "bread"}]

    @server.tool()
    def now() -> str:
        "Says the time."
        return "noon"

    server.run("stdio")
    """
)


def check(rg):
    """The search is the one step; the clock is none."""
    (run,) = rg.runs()
    (step,) = run.steps
    assert (step.tool, step.query) == ("search", "firm in Oslo")
    assert [(one.id, one.text.partition(" (")[0]) for one in step.passages] == [
        ("n1", "Nordvik is based in Oslo"), ("n2", "bread"),
    ]  # fmt: skip


@foreign
@pytest.mark.filterwarnings("ignore")
async def test_a_real_mcp_server_over_stdio_is_a_retrieval_for_langchain(tmp_path):
    from langchain_mcp_adapters.client import MultiServerMCPClient

    (tmp_path / "server.py").write_text(SERVER)
    connection = {"transport": "stdio", "command": sys.executable, "args": [str(tmp_path / "server.py")]}
    tools = {one.name: one for one in await MultiServerMCPClient({"notes": connection}).get_tools()}
    async with RagGuard("nano", store=None, scorers=[]) as rg:
        callback = ragguard_langchain.RagGuardCallback(rg, tools="auto")
        async with rg.run(QUESTION):
            await tools["search"].ainvoke({"query": "firm in Oslo"}, {"callbacks": [callback]})
            await tools["now"].ainvoke({}, {"callbacks": [callback]})
        assert await rg.aflush(10)
        check(rg)


@foreign
@pytest.mark.filterwarnings("ignore")
async def test_a_real_mcp_server_over_stdio_is_a_retrieval_for_llamaindex(tmp_path):
    from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

    (tmp_path / "server.py").write_text(SERVER)
    client = BasicMCPClient(sys.executable, args=[str(tmp_path / "server.py")])
    tools = {one.metadata.name: one for one in await McpToolSpec(client=client).to_tool_list_async()}
    async with RagGuard("nano", store=None, scorers=[]) as rg:
        ragguard_llamaindex.instrument(rg, tools="auto")
        try:
            async with rg.run(QUESTION):
                await tools["search"].acall(query="firm in Oslo")
                await tools["now"].acall()
        finally:
            ragguard_llamaindex.uninstrument()
        assert await rg.aflush(10)
        check(rg)
