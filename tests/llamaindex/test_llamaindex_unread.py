"""Pipelines of LlamaIndex that fail between a retrieval and the model: what a model read of it is unknown."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from support.llamaindex_parts import QUESTION, ListRetriever, Says

UNKNOWN = "unknown"


class Failing(BaseNodePostprocessor):
    error: type[BaseException] = ImportError

    def _postprocess_nodes(self, nodes, query_bundle=None):
        raise self.error("no spacy")


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
