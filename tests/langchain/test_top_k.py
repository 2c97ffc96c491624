"""How many documents a retriever was asked for becomes the number of places of its step."""

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever, EnsembleRetriever
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from support.guards import guarding
from support.langchain_parts import ListRetriever

from ragguard_langchain import GuardedRetriever

MODES = pytest.mark.parametrize("mode", ["sync", "async"])


async def run(retriever, config, mode, **settings):
    if mode == "sync":
        return retriever.invoke("who?", config, **settings)
    return await retriever.ainvoke("who?", config, **settings)


def vector_store(count=4):
    made = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    made.add_documents(
        [Document(f"shelf {number} about it", id=f"shelf-{number}") for number in range(count)]
    )
    return made


class First(BaseDocumentCompressor):
    """A reranker that keeps the first two."""

    def compress_documents(self, documents, query, callbacks=None):
        return documents[:2]


class CountedRetriever(ListRetriever):
    k: int = 4


def places(captured):
    (whole,) = captured.runs
    (step,) = whole.steps
    return step.k, step.places, len(step.passages)


@MODES
async def test_a_retriever_has_as_many_places_as_it_was_asked_for(captured, config, mode):
    await run(vector_store(2).as_retriever(search_kwargs={"k": 3}), config, mode)
    assert places(captured) == (3, 3, 2)


@MODES
async def test_a_retriever_inside_a_chain_too(captured, config, mode):
    chain = vector_store().as_retriever(search_kwargs={"k": 3}) | RunnableLambda(len)
    await run(chain, config, mode)
    assert places(captured) == (3, 3, 3)


@MODES
async def test_what_a_call_says_holds(captured, config, mode):
    await run(vector_store().as_retriever(search_kwargs={"k": 3}), config, mode, k=1)
    assert places(captured) == (1, 1, 1)


@MODES
async def test_a_retriever_with_a_k_of_its_own(captured, config, mode):
    await run(CountedRetriever(count=2), config, mode)
    assert places(captured) == (4, 4, 2)


@MODES
async def test_a_k_that_means_something_else_is_not_believed(captured, config, mode):
    await run(CountedRetriever(count=2, k=1), config, mode)
    assert places(captured) == (None, 2, 2)


@MODES
async def test_a_guard_leaves_the_places_of_the_retriever_before_it(captured, config, mode):
    guarded = GuardedRetriever(vector_store(4).as_retriever(search_kwargs={"k": 5}), guarding())
    found = await run(guarded, config, mode)
    assert len(found) == 2
    assert places(captured) == (5, 5, 2)


@MODES
async def test_a_reranker_chooses_how_many_places_there_are(captured, config, mode):
    base = vector_store().as_retriever(search_kwargs={"k": 4})
    await run(ContextualCompressionRetriever(base_compressor=First(), base_retriever=base), config, mode)
    assert places(captured) == (None, 2, 2)


@MODES
async def test_arms_of_an_ensemble_have_a_k_each_and_the_whole_has_none(captured, config, mode):
    arms = [CountedRetriever(shelf="a"), CountedRetriever(shelf="b")]
    await run(EnsembleRetriever(retrievers=arms, weights=[0.5, 0.5]), config, mode)
    assert places(captured) == (None, 4, 4)
