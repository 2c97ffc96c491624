"""How many nodes a retriever was asked for becomes the number of places of its step."""

import pytest
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import QueryBundle, TextNode
from support.guards import guarding
from support.llamaindex_parts import Says

from ragguard_llamaindex import DistractorPostprocessor, GuardedRetriever

MODES = pytest.mark.parametrize("mode", ["sync", "async"])
pytestmark = pytest.mark.usefixtures("recorder")


class First(BaseNodePostprocessor):
    """A reranker that keeps the first two."""

    def _postprocess_nodes(self, nodes, query_bundle=None):
        return nodes[:2]


def retriever(count=4, top_k=5):
    nodes = [TextNode(text=f"shelf {number} about it", id_=f"shelf-{number}") for number in range(count)]
    return VectorStoreIndex(nodes, embed_model=MockEmbedding(4)).as_retriever(similarity_top_k=top_k)


def places(captured):
    (whole,) = captured.runs
    (step,) = whole.steps
    return step.k, step.places, len(step.passages)


async def retrieve(one, mode):
    return one.retrieve("who?") if mode == "sync" else await one.aretrieve("who?")


async def ask(mode, *postprocessors):
    engine = RetrieverQueryEngine.from_args(
        retriever(), llm=Says(), node_postprocessors=list(postprocessors), use_async=mode == "async"
    )
    return engine.query("who?") if mode == "sync" else await engine.aquery(QueryBundle("who?"))


@MODES
async def test_a_retriever_has_as_many_places_as_it_was_asked_for(captured, mode):
    await retrieve(retriever(2, 3), mode)
    assert places(captured) == (3, 3, 2)


@MODES
async def test_a_guard_leaves_the_places_of_the_retriever_before_it(captured, mode):
    await retrieve(GuardedRetriever(retriever(), guarding()), mode)
    assert places(captured) == (5, 5, 2)


@MODES
async def test_a_guard_behind_a_retriever_leaves_its_places(captured, mode):
    await ask(mode, DistractorPostprocessor(guarding()))
    assert places(captured) == (5, 5, 2)


@MODES
async def test_a_reranker_chooses_how_many_places_there_are(captured, mode):
    await ask(mode, First(), DistractorPostprocessor(guarding()))
    assert places(captured)[:2] == (2, 2)
