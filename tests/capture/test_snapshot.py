"""What a retriever, a tool or a vector store gives is recognised, recorded as what it is, and never changed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core.base.response.schema import Response
from llama_index.core.schema import ImageNode, NodeWithScore, TextNode
from llama_index.core.vector_stores.types import VectorStoreQueryResult
from support.hostile_values import Uncopyable
from support.langchain_parts import Embeddings

from ragguard.capture.snapshot import (
    LOST,
    documents_in,
    metadata_of,
    passages_of,
    score_of,
    text_of,
)
from ragguard.records import CONTENT_KIND, CUT_PASSAGES, Passage
from ragguard.text.plain import CUT

DOCUMENT = Document("about Oslo", id="d1", metadata={"page": 3})
NODE = TextNode(text="about Oslo", id_="n1", metadata={"title": "Firms"})


class Unreadable:
    @property
    def page_content(self):
        raise OSError("gone")


@pytest.mark.parametrize(
    ("given", "count"),
    [
        (DOCUMENT, 1),
        ([DOCUMENT, DOCUMENT], 2),
        ((DOCUMENT,), 1),
        ([(DOCUMENT, 0.5), (DOCUMENT, np.float32(0.25))], 2),
        ((DOCUMENT, 0.5), 1),
        ({"documents": [DOCUMENT]}, 1),
        ({"question": "who?", "context": [DOCUMENT]}, 1),
        ({"results": [DOCUMENT]}, 1),
        ([[DOCUMENT], [DOCUMENT, DOCUMENT]], 3),
        ([NodeWithScore(node=NODE, score=0.5)], 1),
        ([NODE], 1),
        (Response("Ada", source_nodes=[NodeWithScore(node=NODE)]), 1),
        (VectorStoreQueryResult(nodes=[NODE], similarities=[0.5]), 1),
        ([Passage("a")], 1),
        ([], 0),
        ({"documents": []}, 0),
    ],
)
def test_a_retrieval_is_recognised(given, count):
    assert len(documents_in(given)) == count


@pytest.mark.parametrize(
    "given",
    [
        None, "a text", ["a", "b"], [{"text": "a"}], {"results": []}, {"documents": ["a"]}, {}, 12, (1, 2),
        [DOCUMENT, "a text"], [("a", 0.5)], SimpleNamespace(nodes="a"), iter([DOCUMENT]), Unreadable(), [Unreadable()],
    ],
)  # fmt: skip
def test_anything_else_is_no_retrieval(given):
    assert documents_in(given) is None


def test_vector_store_result_with_scores_keeps_ids_scores_and_metadata():
    store = InMemoryVectorStore(Embeddings())
    store.add_documents([DOCUMENT])
    ((document, score),) = pairs = store.similarity_search_with_score("Oslo")
    assert passages_of(pairs) == [Passage("about Oslo", "d1", score, {"page": 3})]
    assert passages_of((document, score)) == passages_of(pairs)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"documents": [DOCUMENT, "a text"]}, [("about Oslo", "d1", None), ("a text", "", None)]),
        ([("a text", 0.5)], [("a text", "", 0.5)]),
        ([{"text": "a", "id": 7, "score": 1}], [("a", "7", 1.0)]),
        ([[DOCUMENT], [DOCUMENT]], [("about Oslo", "d1", None)] * 2),
        (VectorStoreQueryResult(nodes=[NODE]), [("title: Firms\n\nabout Oslo", "n1", None)]),
        (
            {"ids": [["1", "2"]], "documents": [["a", "b"]], "metadatas": [[None, {"page": 2}]], "distances": None},
            [("a", "1", None), ("b", "2", None)],
        ),
        ({"ids": ["1"], "documents": ["a"], "metadatas": None}, [("a", "1", None)]),
        ({"ids": [["1"], []], "documents": [["a"], []], "metadatas": [None, None]}, [("a", "1", None)]),
        ({"ids": ["1", "2"], "documents": [None, "b"], "metadatas": [None, {}]}, [("", "1", None), ("b", "2", None)]),
        ({}, [("", "", None)]),
    ],
)  # fmt: skip
def test_passages_of_every_shape(given, expected):
    assert [(one.text, one.id, one.score) for one in passages_of(given)] == expected


def test_the_distance_of_a_vector_database_is_kept_and_no_score():
    reply = {"ids": [["1"]], "documents": [["a"]], "metadatas": [[{"page": 2}]], "distances": [[0.25]]}
    assert passages_of(reply) == [Passage("a", "1", None, {"page": 2, "distance": 0.25})]


def test_an_image_says_that_it_is_one():
    (passage,) = passages_of([ImageNode(image_path="map.png", metadata={"file": "map.png"})])
    assert (passage.text, passage.metadata[CONTENT_KIND]) == ("", "image")


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        (None, []),
        ([], []),
        ("one text", ["one text"]),
        (["a", "b"], ["a", "b"]),
        (("a", Passage("b")), ["a", "b"]),
        (Passage("a"), ["a"]),
        ({"text": "a"}, ["a"]),
        ([{"page_content": "a"}, {"content": "b"}], ["a", "b"]),
        ([SimpleNamespace(page_content="a"), SimpleNamespace(text="b")], ["a", "b"]),
        ((text for text in "ab"), ["a", "b"]),
        ([b"bytes", 12, None], ["", "", ""]),
        (12, [""]),
    ],
)
def test_whatever_comes_has_a_reading(given, texts):
    assert [passage.text for passage in passages_of(given)] == texts


def test_the_copy_does_not_follow_the_original():
    original = Passage("text", "1", 0.5, {"page": 1}, 4)
    (copy,) = passages_of([original])
    original.metadata["page"] = 2
    original.text = "changed"
    assert copy == Passage("text", "1", 0.5, {"page": 1}, 4)


@pytest.mark.parametrize(
    ("score", "metadata", "expected"),
    [
        (0.5, {}, 0.5),
        (None, {"score": 1}, 1.0),
        (None, {"relevance_score": 0.25, "score": 9}, 0.25),
        (np.float32(0.5), {}, 0.5),
        (None, {"score": "high"}, None),
        (None, {"score": True}, None),
        (None, {"score": [1, 2]}, None),
        (None, {}, None),
    ],
)
def test_the_retrievers_own_score_is_found_where_it_is(score, metadata, expected):
    assert score_of(score, metadata) == expected


@pytest.mark.parametrize(
    ("content", "text", "kind"),
    [
        ("plain", "plain", ""),
        (None, "", "none"),
        (b"bytes", "", "bytes"),
        ([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": "x"}], "a", "image_url"),
        ([{"type": "image", "data": "x"}, {"type": "image", "data": "y"}], "", "image"),
        (["a", {"type": "text", "text": "b"}], "a\nb", ""),
        ({"type": "audio"}, "", "audio"),
        ([3], "", "int"),
        ([], "", ""),
    ],
)
def test_content_is_text_and_what_else_it_was(content, text, kind):
    assert text_of(content) == (text, kind)


@pytest.mark.parametrize("metadata", [Uncopyable(), 12, "page 3", [1, 2]])
def test_metadata_that_cannot_be_copied_says_so(metadata):
    assert list(metadata_of(metadata)) == [LOST]


class Sealed:
    @property
    def text(self):
        raise OSError("gone")


@pytest.mark.parametrize("given", [Sealed(), [Sealed()]])
def test_value_that_raises_when_read_is_described(given):
    (passage,) = passages_of(given)
    assert "unreadable" in passage.metadata[CONTENT_KIND]


def test_mapping_of_many_entries_is_copied_as_far_as_it_is_kept():
    many = {f"key {number}": number for number in range(50_000)}
    copied = metadata_of(many)
    assert len(copied) == 256
    assert copied["key 0"] == 0
    assert copied[CUT] == "the first 255 of 50,000 entries only"


def test_passages_beyond_a_thousand_are_left_out_and_that_is_said():
    found = passages_of(f"passage {number}" for number in range(10**9))
    assert len(found) == 1000
    assert found[-1].metadata[CUT_PASSAGES] == "the first 1,000 passages"
    assert CUT_PASSAGES not in found[0].metadata
    found = passages_of(["passage"] * 1500)
    assert found[-1].metadata[CUT_PASSAGES] == "the first 1,000 of 1,500 passages"


@pytest.mark.parametrize(
    ("given", "kind"), [([1, 2], "int"), ({"body": "x"}, "dict"), (7, "int"), ([None], "NoneType")]
)
def test_what_holds_no_text_is_warned_about_once_with_what_is_allowed(given, kind, caplog):
    assert {one.text for one in passages_of(given)} == {""}
    (warned,) = [one.getMessage() for one in caplog.records if one.name == "ragguard"]
    assert warned.startswith(f"passages: got {kind} without a text; allowed: Passages, texts,")
