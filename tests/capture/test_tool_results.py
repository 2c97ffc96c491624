"""The result of a tool in the forms that tools use: MCP's content blocks, structured data, text."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from ragguard.capture.pipeline_run import ToolResult
from ragguard.capture.splitters import json_items

ITEMS = [{"id": "a", "text": "one"}, {"id": "b", "text": "two"}]


def result_of_mcp_1(*blocks, structured=None, error=False):
    content = [SimpleNamespace(type="text", text=block) for block in blocks]
    return SimpleNamespace(content=content, structuredContent=structured, isError=error)


def result_of_mcp_2(*blocks, structured=None, error=False):
    mcp_types = pytest.importorskip("mcp_types")  # not in the environments of the lowest versions
    content = [mcp_types.TextContent(type="text", text=block) for block in blocks]
    return mcp_types.CallToolResult(content=content, structured_content=structured, is_error=error)


both_versions_of_mcp = pytest.mark.parametrize(
    "made", [result_of_mcp_1, result_of_mcp_2], ids=["mcp 1", "mcp 2"]
)


def split(output):
    return [(one.id, one.text) for one in ToolResult.of(output, "", declared=True).split(json_items)]


@both_versions_of_mcp
@pytest.mark.parametrize(
    ("blocks", "structured"),
    [
        ([json.dumps(item) for item in ITEMS], None),
        ([json.dumps(ITEMS)], None),
        (["no JSON at all"], {"result": ITEMS}),
        ([], {"result": ITEMS}),
    ],
    ids=["a block an item", "one block", "structured content", "no blocks"],
)
def test_mcp_result_is_one_passage_an_item(made, blocks, structured):
    assert split(made(*blocks, structured=structured)) == [("a", "one"), ("b", "two")]


@both_versions_of_mcp
@pytest.mark.parametrize("structured", [None, {"result": []}])
def test_empty_mcp_result_has_no_passages(made, structured):
    assert split(made(structured=structured)) == []


@both_versions_of_mcp
def test_mcp_result_that_says_error_is_one(made):
    assert ToolResult.of(made("no such index", error=True), "", declared=True).error == "no such index"


@pytest.mark.parametrize(
    "output", [{"hits": ITEMS}, ITEMS, json.dumps(ITEMS)], ids=["mapping", "list", "text"]
)
def test_data_are_one_passage_an_item(output):
    assert split(output) == [("a", "one"), ("b", "two")]


@pytest.mark.parametrize(
    ("result", "known", "expected"),
    [
        (ToolResult(documents=["a document"]), False, True),
        (ToolResult(documents=[]), False, True),
        (ToolResult(documents=[], any_list=True), False, False),
        (ToolResult(documents=[], any_list=True), True, True),
        (ToolResult(error="down"), False, False),
        (ToolResult(error="down"), True, True),
        (ToolResult(["a text"]), True, False),
    ],
)
def test_empty_lists_and_errors_are_retrievals_of_a_tool_that_gives_documents(result, known, expected):
    assert result.is_retrieval(known=known) == expected
