"""The number of documents that a retriever is asked for becomes K of its step, where it is said."""

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
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
@pytest.mark.parametrize("around", ["bare", "chain"])
async def test_k_in_a_retrievers_metadata_is_k_of_its_step(captured, config, mode, around):
    retriever = vector_store(2).as_retriever(search_kwargs={"k": 3}, metadata={"ragguard_k": 3})
    await run(retriever | RunnableLambda(len) if around == "chain" else retriever, config, mode)
    assert places(captured) == (3, 3, 2)


def test_k_in_the_metadata_of_a_call_is_k_of_its_step(captured, config):
    vector_store().as_retriever().invoke("who?", {**config, "metadata": {"ragguard_k": 1}}, k=1)
    assert places(captured) == (1, 1, 1)


@MODES
async def test_k_of_a_retriever_is_unknown_unless_it_is_said(captured, config, mode):
    await run(vector_store(2).as_retriever(search_kwargs={"k": 3}), config, mode)
    assert places(captured) == (None, 2, 2)


@pytest.mark.parametrize("k", [1, 0, -1, "3", None, True])
def test_k_that_cannot_be_right_is_not_taken(captured, config, k):
    ListRetriever(count=2, metadata={"ragguard_k": k}).invoke("who?", config)
    assert places(captured) == (None, 2, 2)


def test_guarded_retriever_knows_k_of_the_call_and_of_its_retriever(captured, config):
    store = vector_store()
    GuardedRetriever(store.as_retriever(search_kwargs={"k": 4}), guarding()).invoke("who?", config, k=3)
    GuardedRetriever(CountedRetriever(count=4, k=5), guarding()).invoke("who?", config)
    assert [run.steps[0].k for run in captured.runs] == [3, 5]


@MODES
async def test_a_guard_leaves_the_places_of_the_retriever_before_it(captured, config, mode):
    guarded = GuardedRetriever(vector_store(4).as_retriever(search_kwargs={"k": 5}), guarding())
    found = await run(guarded, config, mode)
    assert len(found) == 2
    assert places(captured) == (5, 5, 2)


@MODES
async def test_a_reranker_chooses_how_many_places_there_are(captured, config, mode):
    base = vector_store().as_retriever(search_kwargs={"k": 4}, metadata={"ragguard_k": 4})
    await run(ContextualCompressionRetriever(base_compressor=First(), base_retriever=base), config, mode)
    assert places(captured) == (None, 2, 2)
