"""Tools that retrieve: declared, with documents in their output, or with retrievers inside; and those that do not."""

from __future__ import annotations

import json

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import StructuredTool, ToolException, tool
from langgraph.types import Command
from support.captured import ids
from support.langchain_agents import ANSWER, agent, asked
from support.langchain_parts import ListRetriever, call, documents, says

from ragguard.capture.splitters import json_items, paragraphs
from ragguard_langchain import RagGuardCallback


@tool(response_format="content_and_artifact")
def reranked(query: str) -> tuple[str, list]:
    """Retrieves three and keeps the best one."""
    found = ListRetriever(count=3).invoke(query)[:1]
    return found[0].page_content, found


@tool
def in_state(query: str) -> Command:
    """Searches, and writes to the graph's state."""
    found = documents("state", 2, query)
    message = ToolMessage("found", tool_call_id=f"call-in_state-{query}", artifact=found)
    return Command(update={"messages": [message]})


def with_tool(one, rg, tools=None, **arguments):
    built = agent(call(one.name, **(arguments or {"query": "hop"})), ANSWER, tools=[one])
    return built.invoke(asked(), {"callbacks": [RagGuardCallback(rg, tools=tools)]})


def test_documents_in_a_command_are_a_step(captured, rg):
    with_tool(in_state, rg)
    assert (captured.step.tool, len(captured.step.candidates)) == ("in_state", 2)


def test_a_retriever_in_a_declared_tool_is_a_part(captured, rg):
    with_tool(reranked, rg, {"reranked": paragraphs})
    step = captured.step
    assert (step.query, len(step.passages)) == ("hop", 1)
    assert [len(sub.passages) for sub in step.sub_steps] == [3]


@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        ({"query": "q", "top": 3}, "q"),
        ({"search_terms": "q", "top": 3}, "q"),
        ({"subject": "s", "relation": "r"}, "subject: s, relation: r"),
    ],
)
def test_the_query_is_what_the_agent_wrote(captured, rg, arguments, query):
    types = {
        key: {"type": "string" if isinstance(value, str) else "integer"} for key, value in arguments.items()
    }
    built = StructuredTool.from_function(
        lambda **given: "a", name="odd", description="x", args_schema={"type": "object", "properties": types}
    )
    built.invoke(arguments, {"callbacks": [RagGuardCallback(rg, tools={"odd": paragraphs})]})
    assert captured.step.query == query


RESULTS = {"query": "who", "results": [{"title": "A", "url": "a", "content": "text of a"}]}


def web_search(query: str) -> dict:
    """Searches, and gives JSON as search engines do."""
    return RESULTS


def to_do(query: str) -> list:
    """Gives something else in JSON."""
    return [{"done": False, "task": "buy milk"}]


@pytest.mark.parametrize(("tools", "found"), [(None, []), ("auto", [["a"]]), (["web_search"], [["a"]])])
def test_a_search_result_is_a_retrieval_where_that_was_asked_for(rg, captured, tools, found, caplog):
    turns = call("web_search", query="who"), call("to_do", query="what"), ANSWER
    handler = RagGuardCallback(rg, tools=tools)
    caplog.set_level("INFO")
    for _ in range(2):
        agent(*turns, tools=[tool(web_search), tool(to_do)]).invoke(asked(), {"callbacks": [handler]})
    steps = [step for run in captured.runs for step in run.steps]
    assert [[one.id for one in step.passages] for step in steps] == found * 2
    assert {step.query for step in steps} <= {"who"}
    assert caplog.text.count("'web_search' gave") <= 1
    assert "'to_do' gave" not in caplog.text


def with_calls_of(one, rg, times=1, **options):
    calls = [call(one.name, query=f"hop{n or ''}") for n in range(times)]
    built = agent(*calls, ANSWER, tools=[one])
    return built.invoke(asked(), {"callbacks": [RagGuardCallback(rg, **options)]})


def test_model_inside_a_tool_whose_reply_the_agent_is_given_has_read_what_it_was_given(captured, rg):
    @tool
    def ask(query: str) -> str:
        """Answers from what it retrieves, by a model of its own."""
        found = ListRetriever(count=3).invoke(query)
        return says("Two shelves tell of the harbour and its cranes.").invoke(str(found[:2])).text

    with_calls_of(ask, rg)
    assert ids(captured.step.passages) == ["shelf-0", "shelf-1"]


@pytest.mark.parametrize("wrap", ["documents", "scored", "mapping"])
def test_documents_in_any_form_are_a_step(captured, rg, wrap):
    found = documents("found", 2, 'it\'s "quoted"\nover lines')
    forms = {
        "documents": ("text", found),
        "scored": ("text", [(one, 0.9) for one in found]),
        "mapping": ("text", {"documents": found}),
    }

    def search(query: str):
        """Searches."""
        return forms[wrap]

    with_calls_of(tool(response_format="content_and_artifact")(search), rg)
    step = captured.step
    assert (step.tool, step.query, ids(step.candidates)) == ("search", "hop", ["found-0", "found-1"])
    assert step.candidates[0].text == found[0].page_content
    assert step.candidates[0].metadata == found[0].metadata
    scores = [0.9, 0.9] if wrap == "scored" else [1.0, 0.9]
    assert [passage.score for passage in step.candidates] == scores
    assert step.metadata["langgraph_node"] == "tools"


def test_a_hop_that_finds_nothing_is_a_step(captured, rg):
    @tool(response_format="content_and_artifact")
    def search(query: str) -> tuple[str, list]:
        """Finds nothing at first."""
        found = documents("found", 1, query) if query == "hop1" else []
        return "\n".join(one.page_content for one in found), found

    with_calls_of(search, rg, times=2)
    assert [(step.query, len(step.passages)) for step in captured.run.steps] == [("hop", 0), ("hop1", 1)]


@pytest.mark.parametrize("told", [True, False])
def test_a_tool_that_has_retrieved_before_and_fails_is_a_failed_step(captured, rg, told):
    @tool(response_format="content_and_artifact")
    def search(query: str) -> tuple[str, list]:
        """Fails the second time."""
        if query == "hop1":
            raise ToolException("index gone")
        found = documents("found", 1, query)
        return found[0].page_content, found

    search.handle_tool_error = told
    try:
        with_calls_of(search, rg, times=2)
    except ToolException:
        assert not told
    first, second = captured.run.steps
    assert (first.status, second.status, second.query) == ("ok", "error", "hop1")
    assert "index gone" in second.error


def of_mcp(blocks, structure=None):
    """A tool as langchain-mcp-adapters makes it: content blocks, and the structure as its artifact."""

    @tool(response_format="content_and_artifact")
    def search(query: str) -> tuple[list, dict | None]:
        """Searches on an MCP server."""
        content = [{"type": "text", "text": block} for block in blocks]
        return content, None if structure is None else {"structured_content": structure}

    return search


ITEMS = [{"content": "one", "id": "1"}, {"content": "two", "id": "2"}]


@pytest.mark.parametrize(
    ("blocks", "structure", "splitter"),
    [
        ([json.dumps(item) for item in ITEMS], None, json_items),
        ([json.dumps(ITEMS)], None, json_items),
        (["two hits, see the structure"], {"result": ITEMS}, json_items),
    ],
)
def test_an_mcp_server_gives_one_block_an_item_or_a_structure(captured, rg, blocks, structure, splitter):
    with_calls_of(of_mcp(blocks, structure), rg, tools={"search": splitter})
    step = captured.step
    assert [(passage.text, passage.id) for passage in step.candidates] == [("one", "1"), ("two", "2")]


class Cut(BaseDocumentCompressor):
    """A reranker that keeps the last two, turned around."""

    def compress_documents(self, documents, query, callbacks=None):
        return list(documents)[:-3:-1]


@pytest.mark.parametrize("pipeline", [False, True])
@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_passage_that_a_reranker_leaves_out_stays_a_candidate(captured, config, mode, pipeline):
    cut = DocumentCompressorPipeline(transformers=[Cut()]) if pipeline else Cut()
    retriever = ContextualCompressionRetriever(base_compressor=cut, base_retriever=ListRetriever(count=4))
    if mode == "invoke":
        retriever.invoke("hop", config)
    else:
        await retriever.ainvoke("hop", config)
    step = captured.step
    assert ids(step.passages) == ["shelf-3", "shelf-2"]
    assert ids(step.candidates) == ["shelf-0", "shelf-1", "shelf-2", "shelf-3"]


def test_an_agent_whose_first_model_call_fails_was_seen(rg):
    """flush() then says what failed, and not that the RagGuard is not attached."""

    def fails(messages):
        raise ConnectionError("no server")

    with pytest.raises(ConnectionError):
        RunnableLambda(fails).with_config(run_name="asks").invoke(
            "Where?", {"callbacks": [RagGuardCallback(rg)], "metadata": {"ragguard_references": ["Oslo"]}}
        )
    assert "instead of retrievals: failed chain 'asks'" in rg.recorder.here.calls.what_to_do()
