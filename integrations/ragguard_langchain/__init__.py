"""ragguard for LangChain and LangGraph.

agent.invoke(question, {"callbacks": [RagGuardCallback(rg)]})     # one call
instrument(rg)                                                    # every call of this process

create_agent(model, tools, middleware=[GuardMiddleware(guard)])   # the guard: before an agent's model reads,
GuardedRetriever(retriever, guard)                                # around any retriever,
DistractorFilter(guard)                                           # as a document compressor

create_agent(model, tools, middleware=[AdviceMiddleware(max_hops=6)])            # advice: an agent that stops in time,

The way of an event: LangChain calls a hook of `callback`. An outermost retriever is one record (`BareRetrieval`) that
goes to the recorder at its end. Any other call becomes an `OpenCall` of the `call_tree`: `tree_runs` finds or opens its
run, `open_calls` opens and closes the step that it is. `guards` puts a guard behind a retrieval.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ragguard_langchain.attachment import instrument, uninstrument
from ragguard_langchain.callback import RagGuardCallback
from ragguard_langchain.guards import DistractorFilter, GuardedRetriever

if TYPE_CHECKING:
    from ragguard_langchain.advice_middleware import AdviceMiddleware
    from ragguard_langchain.middleware import GuardMiddleware

__all__ = [
    "AdviceMiddleware",
    "DistractorFilter",
    "GuardMiddleware",
    "GuardedRetriever",
    "RagGuardCallback",
    "instrument",
    "uninstrument",
]
_HOMES = {
    "AdviceMiddleware": "ragguard_langchain.advice_middleware",
    "GuardMiddleware": "ragguard_langchain.middleware",
}
"""Names whose modules are imported at first use, by module: the middleware needs more than langchain-core, and
advice needs the scorers."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("langchain", "langgraph"):
            raise
        from ragguard.errors import MissingDependency

        raise MissingDependency("langchain", name, "langchain-agents") from error
