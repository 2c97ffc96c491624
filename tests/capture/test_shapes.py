"""Shapes: what a retriever, a tool or a vector store returned is recognised, with ids and scores, by any framework."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core.base.response.schema import Response
from llama_index.core.schema import ImageNode, NodeWithScore, TextNode
from llama_index.core.vector_stores.types import VectorStoreQueryResult

from ragguard.capture.shapes import documents_in
from ragguard.capture.snapshot import passages_of
from ragguard.records import CONTENT_KIND, Passage

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


def test_a_node_is_read_as_the_model_reads_it_with_its_id_and_score():
    (passage,) = passages_of([NodeWithScore(node=NODE, score=0.5)])
    assert passage == Passage("title: Firms\n\nabout Oslo", "n1", 0.5, {"title": "Firms"})


def test_vector_store_result_with_scores_keeps_ids_scores_and_metadata():
    class Embeddings:
        def embed_documents(self, texts):
            return [[float(len(text)), 1.0] for text in texts]

        def embed_query(self, text):
            return [float(len(text)), 1.0]

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


def test_no_framework_is_imported():
    program = (
        "import sys; from ragguard.capture.snapshot import passages_of; passages_of([('a', 0.5), {'text': 'b'}]);"
        "assert not {name.partition('.')[0] for name in sys.modules} & {'langchain_core', 'llama_index', 'numpy'}"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
