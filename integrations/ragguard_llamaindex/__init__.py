"""ragguard for LlamaIndex.

instrument(rg)                                                  # every engine, chat, agent, workflow of this process
index.as_query_engine(node_postprocessors=[DistractorPostprocessor(guard)])         # the guard, before the model reads
GuardedRetriever(index.as_retriever(), guard)                   # the same for what takes a retriever only
"""

from __future__ import annotations

from ragguard_llamaindex import current as _current  # noqa: F401 - so that ragguard.retrieved finds the call at work
from ragguard_llamaindex.instrumentation import instrument, uninstrument
from ragguard_llamaindex.postprocessor import DistractorPostprocessor
from ragguard_llamaindex.retriever import GuardedRetriever

__all__ = ["DistractorPostprocessor", "GuardedRetriever", "instrument", "uninstrument"]
