"""What a tool's output says: the model got what of the retrieved texts is in it; documents in it are a retrieval."""

from __future__ import annotations

import json

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline
from langchain_core.documents import Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.tools import ToolException, tool
from support.langchain_agents import ANSWER, agent, asked
from support.langchain_parts import ListRetriever, call, documents, says

from ragguard.capture.splitters import json_items
from ragguard_langchain import RagGuardCallback


def with_tool(one, rg, times=1, **options):
    calls = [call(one.name, query=f"hop{n or ''}") for n in range(times)]
    built = agent(*calls, ANSWER, tools=[one])
    return built.invoke(asked(), {"callbacks": [RagGuardCallback(rg, **options)]})


def only_step(captured):
    (step,) = captured.run.steps
    return step


def ids(passages):
    return [passage.id for passage in passages]


def test_a_tool_that_retrieves_four_and_returns_one(captured, rg):
    @tool
    def best(query: str) -> str:
        """Gives the third of four."""
        return f"Best match: {ListRetriever(count=4).invoke(query)[2].page_content}."

    with_tool(best, rg)
    step = only_step(captured)
    assert ids(step.passages) == ["shelf-2"]
    assert ids(step.candidates) == ["shelf-0", "shelf-1", "shelf-2", "shelf-3"]


def test_model_inside_a_tool_whose_reply_the_agent_is_given_has_read_what_it_was_given(captured, rg):
    @tool
    def ask(query: str) -> str:
        """Answers from what it retrieves, by a model of its own."""
        found = ListRetriever(count=3).invoke(query)
        return says("Two shelves tell of the harbour and its cranes.").invoke(str(found[:2])).text

    with_tool(ask, rg)
    assert ids(only_step(captured).passages) == ["shelf-0", "shelf-1"]


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

    with_tool(tool(response_format="content_and_artifact")(search), rg)
    step = only_step(captured)
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

    with_tool(search, rg, times=2)
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
        with_tool(search, rg, times=2)
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
    with_tool(of_mcp(blocks, structure), rg, tools={"search": splitter})
    step = only_step(captured)
    assert [(passage.text, passage.id) for passage in step.candidates] == [("one", "1"), ("two", "2")]


def test_texts_in_blocks_are_split_one_by_one(captured, rg):
    with_tool(of_mcp(["first\nline", "second"]), rg, tools={"search": lambda text: [text]})
    assert [passage.text for passage in only_step(captured).passages] == ["first\nline", "second"]


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
    step = only_step(captured)
    assert ids(step.passages) == ["shelf-3", "shelf-2"]
    assert ids(step.candidates) == ["shelf-0", "shelf-1", "shelf-2", "shelf-3"]


def test_text_of_says_what_the_model_reads(captured, rg):
    def titled(document: Document) -> str:
        return f"{document.metadata['source']}: {document.page_content}"

    config = {"callbacks": [RagGuardCallback(rg, text_of=titled)]}
    ListRetriever().invoke("hop", config)
    agent(call("search", query="hop"), ANSWER).invoke(asked(), config)
    for run in captured.runs:
        assert [p.text for p in run.steps[0].candidates] == [
            "shelf: shelf 0 about hop",
            "shelf: shelf 1 about hop",
        ]
