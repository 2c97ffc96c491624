"""Pipelines of LlamaIndex that fail between a retrieval and the model: what a model read of it is unknown."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from llama_index.core.llms import CompletionResponse
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import CustomQueryEngine, RetrieverQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.workflow import StartEvent, StopEvent, Workflow, step
from support.llamaindex_parts import QUESTION, ListRetriever, Says

from ragguard.capture.handle import RunHandle

UNKNOWN = "unknown"


class Failing(BaseNodePostprocessor):
    error: type[BaseException] = ImportError

    def _postprocess_nodes(self, nodes, query_bundle=None):
        raise self.error("no spacy")


class FailingModel(Says):
    def complete(self, prompt: str, formatted: bool = False, **kwargs: object) -> CompletionResponse:
        raise RuntimeError("the model is down")


def delivered(captured):
    (one,) = captured.run.steps
    return len(one.passages), len(one.candidates), one.metadata.get("ragguard.delivered", "")


def engine(*postprocessors, llm=None, retriever=None):
    return RetrieverQueryEngine.from_args(
        retriever or ListRetriever(count=3), llm=llm or Says(), node_postprocessors=list(postprocessors)
    )


def test_pipeline_that_is_cancelled_before_its_model_leaves_unknown_what_was_read(recorder, captured):
    with suppress(asyncio.CancelledError):
        engine(Failing(error=asyncio.CancelledError)).query(QUESTION)
    assert (captured.run.status, *delivered(captured)) == ("cancelled", 3, 3, UNKNOWN)


def test_nodes_that_a_later_engine_of_the_run_is_given_were_read(recorder, captured):
    with RunHandle(recorder, QUESTION) as run:
        with suppress(ImportError):
            engine(Failing()).query(QUESTION)
        engine().query(QUESTION)
        run.answered("Ada Berg")
    assert [len(one.passages) for one in captured.run.steps] == [3, 3]


def test_nodes_of_a_model_that_fails_were_handed_to_it(recorder, captured):
    with suppress(RuntimeError):
        engine(llm=FailingModel()).query(QUESTION)
    assert (captured.run.status, *delivered(captured)) == ("error", 3, 3, "")


class Own(CustomQueryEngine):
    """An engine by hand, in which a model may have been asked before it failed."""

    def custom_query(self, query_str: str):
        ListRetriever(count=3).retrieve(query_str)
        raise ValueError("no such template")


class Steps(Workflow):
    @step
    async def retrieve(self, ev: StartEvent) -> StopEvent:
        await ListRetriever(count=3).aretrieve(ev.question)
        raise ValueError("no such template")


@pytest.mark.parametrize("fails", ["an engine by hand", "a workflow's step"])
async def test_code_that_fails_after_a_retrieval_leaves_unknown_what_was_read(recorder, captured, fails):
    with suppress(ValueError):
        Own().query(QUESTION) if fails == "an engine by hand" else await Steps().run(question=QUESTION)
    assert (captured.run.status, *delivered(captured)) == ("error", 3, 3, UNKNOWN)


def test_an_engine_that_goes_on_without_its_postprocessor(recorder, captured):
    class Lenient(RetrieverQueryEngine):
        def _apply_node_postprocessors(self, nodes, query_bundle):
            with suppress(ImportError):
                return super()._apply_node_postprocessors(nodes, query_bundle)
            return nodes

    Lenient.from_args(ListRetriever(count=3), llm=Says(), node_postprocessors=[Failing()]).query(QUESTION)
    assert (captured.run.status, *delivered(captured)) == ("ok", 3, 3, "")


def test_a_retrieval_in_parts(recorder, captured):
    fused = QueryFusionRetriever(
        [ListRetriever("a"), ListRetriever("b")], llm=Says(), num_queries=1, use_async=False
    )
    with suppress(ImportError):
        engine(Failing(), retriever=fused).query(QUESTION)
    (step,) = captured.run.steps
    assert (captured.run.status, step.metadata["ragguard.delivered"]) == ("error", UNKNOWN)
