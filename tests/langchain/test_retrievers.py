"""Bare retrievers: one call, one run, one step; how many places a step has; LangChain's own tests of a retriever."""

from __future__ import annotations

import asyncio
import contextvars
from types import SimpleNamespace
from uuid import uuid4

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests import RetrieversIntegrationTests
from support.child import in_child
from support.guards import guarding
from support.langchain_parts import ListRetriever, documents

from ragguard import RagGuard
from ragguard.capture.handle import RunHandle
from ragguard.capture.recorder import Recorder
from ragguard.service.queue import size_of
from ragguard_langchain import GuardedRetriever, RagGuardCallback
from ragguard_langchain.call_tree import CallTree

QUESTION = "Who founded the firm based in Oslo?"


class Search(BaseRetriever):
    """Finds one page."""

    page: str

    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(self.page)]


def test_the_callers_list_is_neither_kept_nor_changed(captured, config):
    given = ListRetriever().invoke(QUESTION, config)
    assert len(given) == 2
    given[0].metadata["source"] = "changed"
    given[0].page_content = "changed"
    del given[1:]
    step = captured.step
    assert [p.metadata["source"] for p in step.passages] == ["shelf", "shelf"]
    assert "changed" not in [p.text for p in step.passages]


def test_bare_retrieval_is_counted_as_a_step_and_by_its_texts(monkeypatch):
    events = []
    with RagGuard("nano", store=None, scorers=()) as rg:
        config = {"callbacks": [RagGuardCallback(rg)]}
        ListRetriever().invoke(QUESTION, config)
        report = rg.flush(timeout=30)
        monkeypatch.setattr("ragguard.service.intake.UNMEASURED", 0)
        monkeypatch.setattr(
            "ragguard.service.intake.size_of", lambda event: events.append(event) or size_of(event)
        )
        Search(page="x" * 50_000).invoke(QUESTION, config)
    assert (report.captured, report.steps, report.no_capture_reason) == (1, 1, "")
    assert 50_000 <= size_of(events[0]) <= 60_000


@pytest.mark.parametrize("times", [2, 3])
def test_a_handler_that_is_attached_several_times_counts_once(captured, rg, times):
    handler = RagGuardCallback(rg)
    ListRetriever().with_config(callbacks=[handler]).invoke(QUESTION, {"callbacks": [handler] * times})
    assert len(captured.step.passages) == 2


def test_metadata_says_what_the_run_is(captured, config):
    ListRetriever().invoke(
        QUESTION,
        {
            **config,
            "metadata": {
                "ragguard_references": "Ada Berg",
                "ragguard_name": "nightly",
                "ragguard_run_id": "run-7",
                "user": "u1",
            },
        },
    )
    run = captured.run
    assert (run.name, run.references) == ("nightly", ["Ada Berg"])
    assert run.metadata == {"user": "u1", "framework": "langchain", "ragguard.caller_id": "run-7"}


def test_calls_with_the_id_of_an_open_run_join_it(captured, recorder, config):
    with RunHandle(recorder, QUESTION, id="run-7") as run:
        pass
    handle = RunHandle(recorder, QUESTION, id="run-8")
    contextvars.Context().run(handle.__enter__)  # as in another thread
    named = {**config, "metadata": {"ragguard_run_id": "run-8"}}
    ListRetriever().invoke("first hop", named)
    ListRetriever().invoke("second hop", named)
    handle.answered("Ada Berg")
    handle.__exit__(None, None, None)
    joined = next(run for run in captured.runs if run.id == handle.id)
    assert [step.query for step in joined.steps] == ["first hop", "second hop"]
    assert (joined.question, joined.answer) == (QUESTION, "Ada Berg")
    assert run.steps == []


def test_unsampled_calls_leave_no_trace(captured):
    recorder = Recorder(captured, sample_rate=0.0)
    config = {"callbacks": [RagGuardCallback(SimpleNamespace(recorder=recorder))]}
    ListRetriever().invoke(QUESTION, config)
    with pytest.raises(ValueError, match="gone"):
        ListRetriever(fault=lambda query: ValueError("gone")).invoke(QUESTION, config)
    assert captured.events == []
    assert recorder.here.counts["unsampled"] == 2
    assert (len(recorder.here.runs), len(CallTree.of(recorder).open_calls)) == (0, 0)


async def test_cancelled_retrievers_of_which_langchain_reports_no_end_are_abandoned_when_they_are_old(
    captured, recorder, config
):
    shelf = ListRetriever(gate=asyncio.Event())
    tasks = [asyncio.create_task(shelf.ainvoke(f"question {n}", config)) for n in range(100)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    recorder.here.sweep()
    assert captured.events == []
    CallTree.of(recorder).sweep(0.0)
    assert {run.status for run in captured.runs} == {"abandoned"}
    assert len(captured.runs) == 100


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_handler_in_a_forked_child_captures_the_childs_runs_alone(captured, rg):
    handler, call = RagGuardCallback(rg), uuid4()
    handler.on_retriever_start({}, "the parent's", run_id=call)

    def child() -> bool:
        ListRetriever().invoke("the child's", {"callbacks": [handler]})
        handler.on_retriever_end([], run_id=call)
        return [run.question for run in captured.runs] == ["the child's"]

    in_child(child)
    handler.on_retriever_end([], run_id=call)
    assert [run.question for run in captured.runs] == ["the parent's"]


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


@MODES
@pytest.mark.parametrize("around", ["bare", "chain"])
async def test_k_in_a_retrievers_metadata_is_k_of_its_step(captured, config, mode, around):
    retriever = vector_store(2).as_retriever(search_kwargs={"k": 3}, metadata={"ragguard_k": 3})
    await run(retriever | RunnableLambda(len) if around == "chain" else retriever, config, mode)
    assert captured.places == (3, 3, 2)


def test_k_in_the_metadata_of_a_call_is_k_of_its_step(captured, config):
    vector_store().as_retriever().invoke("who?", {**config, "metadata": {"ragguard_k": 1}}, k=1)
    assert captured.places == (1, 1, 1)


@pytest.mark.parametrize("k", [1, 0, -1, "3", None, True])
def test_k_that_cannot_be_right_is_not_taken(captured, config, k):
    ListRetriever(count=2, metadata={"ragguard_k": k}).invoke("who?", config)
    assert captured.places == (None, 2, 2)


@MODES
async def test_a_guard_leaves_the_places_of_the_retriever_before_it(captured, config, mode):
    guarded = GuardedRetriever(vector_store(4).as_retriever(search_kwargs={"k": 5}), guarding())
    found = await run(guarded, config, mode)
    assert len(found) == 2
    assert captured.places == (None, 4, 2)


@MODES
async def test_a_reranker_chooses_how_many_places_there_are(captured, config, mode):
    base = vector_store().as_retriever(search_kwargs={"k": 4}, metadata={"ragguard_k": 4})
    await run(ContextualCompressionRetriever(base_compressor=First(), base_retriever=base), config, mode)
    assert captured.places == (None, 2, 2)


class Sized(ListRetriever):
    """A shelf whose size may also be said in a call."""

    def _get_relevant_documents(self, query, *, run_manager, k=None):
        return documents(self.shelf, k or self.count, query)


class Guarded(GuardedRetriever):
    """One that is made from a size alone, as LangChain's tests make theirs; its guard drops nothing."""

    def __init__(self, k: int = 3) -> None:
        super().__init__(Sized(count=k), guarding(threshold=-1.0))


class TestGuardedRetriever(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self):
        return Guarded

    @property
    def retriever_query_example(self):
        return "Who founded the firm based in Oslo?"
