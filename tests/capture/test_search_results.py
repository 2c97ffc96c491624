"""The result of a search, in the forms in which tools, MCP servers and search engines give it, and other results."""

import json

import pytest

from ragguard.capture.splitters import found, search_results

ITEMS = [{"id": "a", "text": "text of a"}, {"id": "b", "text": "text of b"}]
DOCUMENTS = [
    {"id": one, "page_content": f"text of {one}", "metadata": {"page": 1}, "type": "Document"} for one in "ab"
]
NODES = [
    {"node": {"id_": one, "text": f"text of {one}", "metadata": {}, "class_name": "TextNode"}, "score": 0.5}
    for one in "ab"
]
CONSTRUCTED = [
    {"lc": 1, "type": "constructor", "id": ["langchain", "Document"], "kwargs": one} for one in DOCUMENTS
]
RESULTS = {
    "a list of items": ITEMS,
    "with titles and snippets": [{"title": "A", "link": "a", "snippet": "text of a"},
                                 {"href": "b", "body": "text of b"}],
    "Tavily": {"query": "q", "answer": None, "results": [
        {"title": "A", "url": "a", "content": "text of a", "score": 0.9, "raw_content": None},
        {"title": "B", "url": "b", "content": "text of b", "score": 0.8, "raw_content": None}]},
    "Exa": {"requestId": "1", "results": [
        {"id": "a", "url": "x", "text": "text of a"}, {"id": "b", "highlights": ["text of b"]}]},
    "Brave": {"type": "search", "web": {"type": "search", "results": [
        {"title": "A", "url": "a", "description": "text of a"},
        {"title": "B", "url": "b", "description": "text of b"}]}},
    "LangChain's documents": DOCUMENTS,
    "LangChain's documents, constructed": CONSTRUCTED,
    "documents with scores": [[one, 0.5] for one in DOCUMENTS],
    "LlamaIndex' nodes": NODES,
    "nodes as texts": [json.dumps(one) for one in NODES],
    "a message of a tool": {"type": "tool", "data": {"content": "a text", "artifact": DOCUMENTS}},
    "an output of a tool": {"blocks": [{"text": "a text"}], "raw_output": NODES},
    "MCP, structured": {"content": [{"type": "text", "text": "a text"}], "structuredContent": {"result": ITEMS}},
    "MCP, a block an item": {"content": [{"type": "text", "text": json.dumps(one)} for one in ITEMS]},
    "MCP, one block": {"content": [{"type": "text", "text": json.dumps({"results": ITEMS})}], "isError": False},
    "blocks alone": [{"type": "text", "text": json.dumps(ITEMS)}],
}  # fmt: skip


@pytest.mark.parametrize("shape", RESULTS)
@pytest.mark.parametrize("form", ["data", "text"])
def test_a_search_result(shape, form):
    given = RESULTS[shape] if form == "data" else json.dumps(RESULTS[shape])
    passages = search_results(given)
    assert [(one.id, one.text) for one in passages] == [("a", "text of a"), ("b", "text of b")]


NO_RESULTS = {
    "a text": "It rains.",
    "no items": [],
    "other items": [{"task": "buy milk", "done": False}],
    "texts alone": ["one", "two"],
    "items with a text alone": [{"text": "one"}],
    "some items": [ITEMS[0], {"done": True}],
    "messages": {"messages": [{"role": "user", "content": "text of a"}]},
    "an answer": {"answer": "Ada", "content": "Ada", "id": "a"},
    "a number": 3,
    "MCP's text": {"content": [{"type": "text", "text": "It rains."}]},
    "MCP's picture": {"content": [{"type": "image", "data": "aGk="}]},
    "reprs of objects": ["<NodeWithScore(node=TextNode(id_=a), score=0.5)>"],
    "deep": json.loads('{"results": ' * 40 + json.dumps(ITEMS) + "}" * 40),
    "too deep for JSON": "[" * 100_000,
    "a number too long": "[" + "9" * 10_000 + "]",
}


@pytest.mark.parametrize("shape", NO_RESULTS)
def test_no_search_result(shape):
    assert search_results(NO_RESULTS[shape]) is None


def test_of_a_declared_call_texts_and_nothing_count_as_well():
    assert [one.text for one in search_results(["one", "two"], declared=True)] == ["one", "two"]
    assert search_results([], declared=True) == search_results({"results": []}, declared=True) == []
    assert search_results(NO_RESULTS["reprs of objects"], declared=True) is None
    assert [one.text for one in found("It rains.")] == ["It rains."]
    assert found(" ") == []
