"""How many nodes a retriever was asked for becomes the number of places of its step."""

import pytest
from llama_index.core import MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import AutoMergingRetriever
from llama_index.core.schema import NodeRelationship, QueryBundle, TextNode
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
async def test_a_reranker_chooses_how_many_places_there_are(captured, mode):
    await ask(mode, First(), DistractorPostprocessor(guarding()))
    assert places(captured)[:2] == (2, 2)


class Hybrid(BaseRetriever):
    """Joins what several retrievers find."""

    def __init__(self, *arms):
        super().__init__()
        self.arms = arms

    def _retrieve(self, query_bundle):
        found = [node for arm in self.arms for node in arm.retrieve(query_bundle)]
        return list({node.node_id: node for node in found}.values())


def test_hybrid_that_delivers_more_than_any_arm_was_asked_for_has_as_many_places_as_it_delivers(captured):
    first, second = (
        VectorStoreIndex(
            [TextNode(text=f"{name} {number}", id_=f"{name}-{number}") for number in range(4)],
            embed_model=MockEmbedding(4),
        ).as_retriever(similarity_top_k=3)
        for name in ("shelf", "drawer")
    )
    Hybrid(first, second).retrieve("who?")
    assert places(captured) == (None, 6, 6)


def test_auto_merging_retriever_has_the_places_of_its_vector_retriever(captured):
    parents = [TextNode(text=f"book {number}", id_=f"book-{number}") for number in range(2)]
    leaves = []
    for parent in parents:
        mine = [TextNode(text=f"{parent.text} page {at}", id_=f"{parent.id_}-{at}") for at in range(2)]
        for leaf in mine:
            leaf.relationships[NodeRelationship.PARENT] = parent.as_related_node_info()
        parent.relationships[NodeRelationship.CHILD] = [leaf.as_related_node_info() for leaf in mine]
        leaves += mine
    storage = StorageContext.from_defaults()
    storage.docstore.add_documents([*parents, *leaves])
    index = VectorStoreIndex(leaves, embed_model=MockEmbedding(4))
    found = AutoMergingRetriever(index.as_retriever(similarity_top_k=5), storage).retrieve("who?")
    assert len(found) == 2
    assert places(captured) == (5, 5, 2)
    (step,) = captured.run.steps
    assert [one.id for one in step.candidates] == [leaf.id_ for leaf in leaves]
