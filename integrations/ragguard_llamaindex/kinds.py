"""The kinds of LlamaIndex's spans that capture follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from enum import Enum, auto
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow
from llama_index.core.agent.workflow.base_agent import BaseWorkflowAgent
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.chat_engine.types import BaseChatEngine, StreamingAgentChatResponse
from llama_index.core.llms import LLM
from llama_index.core.objects import ObjectRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import (
    RouterQueryEngine,
    SubQuestionQueryEngine,
    ToolRetrieverRouterQueryEngine,
)
from llama_index.core.response_synthesizers import BaseSynthesizer
from llama_index.core.tools import BaseTool
from llama_index.core.workflow import Workflow


class Kind(Enum):
    """The kinds of spans that capture follows; all other spans are passed over."""

    __hash__ = object.__hash__  # each kind is one object, and Enum's own hash is a slow function in Python
    RETRIEVER = auto()
    IGNORED = auto()
    """The retriever by which an agent or a router chooses its tools or engines. Nothing in it is captured."""
    ENGINE = auto()
    FANOUT = auto()
    """An engine that asks several other engines, none of which sees another's answer."""
    WORKFLOW = auto()
    STEP = auto()
    """A step of a workflow, an agent's included."""
    TOOL = auto()
    POSTPROCESSOR = auto()
    SYNTHESIS = auto()
    MODEL = auto()
    """A call of a model, whose input shows which passages were read."""
    CHAT_WRITER = auto()
    """The call that fills a streamed chat response, in the background."""
    HANDLE = auto()
    """Stands for `with rg.run(...)` around LlamaIndex, which has no span."""


ROOTS = frozenset((Kind.RETRIEVER, Kind.ENGINE, Kind.FANOUT, Kind.WORKFLOW, Kind.TOOL))
"""The kinds that may be a run when nothing is around them."""
ASKING = ROOTS - {Kind.TOOL}
"""The kinds of calls that pass a query on to a retriever."""
ENDING = ROOTS | {Kind.SYNTHESIS}
"""The kinds with whose outermost span a run ends."""
ANSWERING = ENDING - {Kind.RETRIEVER}
"""The kinds of ending spans that have an answer."""

_ASKED = frozenset(
    f"{way}{method}" for way in ("", "a", "stream_", "astream_") for method in ("chat", "complete")
)
_SPANS: tuple[tuple[frozenset[str], type, Kind], ...] = (
    (frozenset(("retrieve", "aretrieve")), BaseRetriever, Kind.RETRIEVER),
    (frozenset(("query", "aquery")), SubQuestionQueryEngine, Kind.FANOUT),
    (frozenset(("query", "aquery")), RouterQueryEngine, Kind.FANOUT),
    (frozenset(("query", "aquery")), ToolRetrieverRouterQueryEngine, Kind.FANOUT),
    (frozenset(("query", "aquery")), BaseQueryEngine, Kind.ENGINE),
    (frozenset(("chat", "achat", "stream_chat", "astream_chat")), BaseChatEngine, Kind.ENGINE),
    (frozenset(("predict_and_call", "apredict_and_call")), LLM, Kind.FANOUT),
    (frozenset(("run",)), Workflow, Kind.WORKFLOW),
    (frozenset(("__call__", "call", "acall")), BaseTool, Kind.TOOL),
    (frozenset(("_postprocess_nodes", "_apostprocess_nodes")), BaseNodePostprocessor, Kind.POSTPROCESSOR),
    (frozenset(("synthesize", "asynthesize")), BaseSynthesizer, Kind.SYNTHESIS),
    (_ASKED, BaseLLM, Kind.MODEL),
    (
        frozenset(("write_response_to_history", "awrite_response_to_history")),
        StreamingAgentChatResponse,
        Kind.CHAT_WRITER,
    ),
)


def kind_of(name: str, instance: object) -> Kind | None:
    """Returns the kind of the span `Class.method` of an instance; None for a span that capture does not follow."""
    method = name.rpartition(".")[2]
    if instance is None:
        return Kind.STEP  # a step where a workflow is around it, else an ordinary function
    for methods, owner, kind in _SPANS:
        if method in methods and isinstance(instance, owner):
            return kind
    return None


def choosers_of(instance: object) -> Set[int]:
    """Returns the identities of the retrievers by which an agent or a router finds its tools."""
    return {id(found.retriever) for found in _object_retrievers(instance)}


def names_in(instance: object) -> Mapping[int, str]:
    """Returns the names of the tools among which an engine chooses, by the identity of their engines."""
    engines = getattr(instance, "_query_engines", None)
    if isinstance(engines, Mapping):
        return {id(engine): str(name) for name, engine in engines.items()}
    if isinstance(engines, (list, tuple)):
        about = getattr(instance, "_metadatas", ())
        return {
            id(engine): str(getattr(one, "name", "") or "")
            for engine, one in zip(engines, about, strict=False)
        }
    return {}


def agent_of(instance: object) -> str:
    """Returns the name of an agent, or of the agent that a workflow of agents begins with."""
    if isinstance(instance, AgentWorkflow):
        return str(instance.root_agent)
    return str(instance.name) if isinstance(instance, BaseWorkflowAgent) else ""


def _object_retrievers(instance: object) -> Iterator[ObjectRetriever[Any]]:
    if isinstance(instance, AgentWorkflow):
        for agent in instance.agents.values():
            yield from _object_retrievers(agent)
        return
    found = None
    if isinstance(instance, BaseWorkflowAgent):
        found = instance.tool_retriever
    elif isinstance(instance, ToolRetrieverRouterQueryEngine):
        found = instance._retriever
    if isinstance(found, ObjectRetriever):
        yield found
