"""Recognises LlamaIndex's evaluators by their calls: an evaluator puts the contexts to be judged into an index, and
queries it.

Such a query is not the application's, and its passages were not retrieved for the answer.
"""

from __future__ import annotations

import sys

from llama_index.core.indices.list.retrievers import SummaryIndexRetriever
from llama_index.core.query_engine import RetrieverQueryEngine

_EVALUATION = "llama_index.core.evaluation."
_FRAMES = 16
"""The most frames between an evaluator and the hook of the engine that it queries."""


def asked_by_evaluator(engine: object) -> bool:
    """True for an engine over a list of texts that an evaluator is querying."""
    if not isinstance(engine, RetrieverQueryEngine) or not isinstance(
        engine.retriever, SummaryIndexRetriever
    ):
        return False
    frame = sys._getframe(1).f_back
    for _ in range(_FRAMES):
        if frame is None:
            return False
        if str(frame.f_globals.get("__name__", "")).startswith(_EVALUATION):
            return True
        frame = frame.f_back
    return False
