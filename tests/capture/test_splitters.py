"""The usual splitters, and results of searches: recognised in plain data, and nothing else taken for one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragguard.capture import splitters
from ragguard.capture.splitters import passages_in_text, search_results
from ragguard.errors import InvalidInput
from ragguard.records import Passage


@pytest.mark.parametrize(
    ("splitter", "text", "parts"),
    [
        (splitters.paragraphs, "a\nb\n\nc\n \t\n\n d", ["a\nb", "c", "d"]),
        (splitters.paragraphs, "", []),
        (splitters.numbered, "Found:\n1. a\nmore\n2) b\n [3] c\n(4) d", ["a\nmore", "b", "c", "d"]),
        (splitters.numbered, "no list", ["no list"]),
        (splitters.separated_by("---"), "a---b\n---\n", ["a", "b"]),
    ],
)
def test_the_usual_ones(splitter, text, parts):
    assert list(splitter(text)) == parts


@pytest.mark.parametrize(
    ("text", "passages"),
    [
        ('["a", "b"]', [Passage("a"), Passage("b")]),
        (
            '{"query": "q", "results": [{"url": "u", "content": "c", "score": 0.5}]}',
            [Passage("c", "u", 0.5, {"url": "u", "score": 0.5})],
        ),
        (
            '[{"id": 3, "text": "t", "metadata": {"page": 2}}]',
            [Passage("t", "3", None, {"id": 3, "page": 2})],
        ),
        ('{"text": "alone"}', [Passage("alone")]),
        ('[{"n": 1}, 7]', [Passage('{"n": 1}', metadata={"n": 1}), Passage("7")]),
        ("[]", []),
    ],
)
def test_json(text, passages):
    assert splitters.json_items(text) == passages


def test_text_that_is_no_json_raises_for_the_recorder_to_note():
    with pytest.raises(ValueError):
        splitters.json_items("not json")


@pytest.mark.parametrize("separator", ["", None, 3])
def test_a_separator_must_be_a_text(separator):
    with pytest.raises(InvalidInput, match="separator"):
        splitters.separated_by(separator)


@given(st.text())
def test_no_text_breaks_them_and_nothing_is_invented(text):
    for split in (splitters.paragraphs, splitters.numbered, splitters.separated_by("d")):
        for part in split(text):
            assert part
            assert part in text


@pytest.mark.parametrize("hostile", ["\n \t", "<d ", "1. ", "[1"])
def test_hostile_texts_take_linear_time(hostile):
    """Quadratic time would be hours: the limit that every test has would end it."""
    hostile *= 500_000
    for split in (splitters.paragraphs, splitters.numbered, splitters.separated_by("d")):
        list(split(hostile))


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
    assert [one.text for one in passages_in_text("It rains.")] == ["It rains."]
    assert passages_in_text(" ") == passages_in_text("[]") == passages_in_text('{"results": []}') == []
    assert [one.text for one in passages_in_text('{"result": "It rains."}')] == [
        "It rains."
    ]  # of FastMCP, for a text


def test_json_without_passages_is_one_and_that_is_said(caplog):
    assert [one.text for one in passages_in_text('{"rows": [{"sky": "grey"}]}')] == [
        '{"rows": [{"sky": "grey"}]}'
    ]
    assert "JSON without passages that ragguard recognises" in caplog.text
