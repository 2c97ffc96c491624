"""ragguard for LlamaIndex.

instrument(rg)                                                  # every engine, chat, agent, workflow of this process
index.as_query_engine(node_postprocessors=[DistractorPostprocessor(guard)])         # the guard, before the model reads
GuardedRetriever(index.as_retriever(), guard)                   # the same for what takes a retriever only
AdvisedFunctionAgent(tools=[search], llm=llm, max_hops=6)       # advice: an agent that stops in time,

The way of an event: LlamaIndex's dispatcher calls the handler of `instrumentation`, which is `spans`. The kind of a
span says whether it is followed. An outermost retriever is one record that goes to the recorder at its end. Any other
span becomes a `Call` (`calls`); `runs` opens and ends its run, finds retrievals in tools and hands on what guards
decided. `messages` reads questions and answers, streamed ones too; `nodes` takes snapshots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragguard.runtime import lazy
from ragguard_llamaindex.guards import DistractorPostprocessor, GuardedRetriever
from ragguard_llamaindex.instrumentation import instrument, uninstrument

if TYPE_CHECKING:
    from ragguard_llamaindex.advice import AdvisedFunctionAgent

__all__ = [
    "AdvisedFunctionAgent",
    "DistractorPostprocessor",
    "GuardedRetriever",
    "instrument",
    "uninstrument",
]

_HOMES = {"AdvisedFunctionAgent": "ragguard_llamaindex.advice"}
"""Names whose modules are imported at first use, by module: advice needs LlamaIndex's agents and the scorers."""
__getattr__, _ = lazy(__name__, _HOMES)
