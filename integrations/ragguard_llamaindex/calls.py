"""What a span of LlamaIndex is to us, and what the spans inside it have to know of it."""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextvars import Token
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow
from llama_index.core.agent.workflow.base_agent import BaseWorkflowAgent
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
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

from ragguard.capture.turns import TurnKey
from ragguard.records import TraceContext
from ragguard_llamaindex.shares import Given
from ragguard_llamaindex.streams import Heard

PENDING_KEPT = 64
"""How many retrievals of one call are remembered until it is known what the model gets of them."""


class Kind(Enum):
    """The spans that matter; all others are passed over."""

    RETRIEVER = auto()
    CHOICE = auto()
    """A retrieval of tools or engines, not of passages: nothing in it is captured."""
    ENGINE = auto()
    FANOUT = auto()
    """An engine that asks several others, none of which sees another's answer."""
    WORKFLOW = auto()
    AGENT_STEP = auto()
    """One turn of an agent's model: the tool calls it asks for run in parallel."""
    TOOL = auto()
    POSTPROCESSOR = auto()
    SYNTHESIS = auto()
    CHAT_WRITER = auto()
    """What fills a streamed chat response, in the background."""
    HANDLE = auto()
    """No span: `with rg.run(...)` around LlamaIndex."""


ROOTS = frozenset((Kind.RETRIEVER, Kind.ENGINE, Kind.FANOUT, Kind.WORKFLOW, Kind.TOOL))
"""What may be a run when nothing is around it."""
ASKING = ROOTS - {Kind.TOOL}
"""What takes a query on its way to a retriever."""
ANSWERING = ROOTS | {Kind.SYNTHESIS}
"""What may give a run its answer, or its end."""

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
    (
        frozenset(("write_response_to_history", "awrite_response_to_history")),
        StreamingAgentChatResponse,
        Kind.CHAT_WRITER,
    ),
)


def kind_of(name: str, instance: object) -> Kind | None:
    """The kind of the span `Class.method` of that instance; None for what does not matter here."""
    method = name.rpartition(".")[2]
    if instance is None:
        return Kind.AGENT_STEP if method == "run_agent_step" else None
    for methods, owner, kind in _SPANS:
        if method in methods and isinstance(instance, owner):
            return kind
    return None


def choosers_of(instance: object) -> Set[int]:
    """The identities of the retrievers by which an agent or a router finds its tools."""
    return {id(found.retriever) for found in _object_retrievers(instance)}


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


@dataclass(slots=True, eq=False)
class Invocation:
    """One run as LlamaIndex sees it; the recorder hears of it when its first retrieval begins."""

    run_id: str
    owned: bool
    """False where it is the user's own, made by `rg.run(...)`."""
    question: str = ""
    name: str = ""
    references: list[str] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    said: bool = False
    """Whether tags say something of it."""
    started_ns: int = 0
    trace: TraceContext | None = None
    bare: Call | None = None
    """The retriever that this run is, as long as nothing else happens in it."""
    begun: bool = False
    over: bool = False


@dataclass(slots=True, eq=False)
class Call:
    """One open span that matters. Holds no object of the application's."""

    id: str
    kind: Kind
    run: Invocation
    parent: Call | None = None
    step_id: str = ""
    """The retrieval that this is, or is a part of."""
    tool: str = ""
    turn: TurnKey | None = None
    asked: str = ""
    """The query as this call got it."""
    meant: str = ""
    """The query as its author wrote it, before a tool dressed it up."""
    dresses: bool = False
    """Of a tool: that it does so."""
    choosers: Set[int] = frozenset()
    """Of an agent or a router: the retrievers that find its tools."""
    turns: int = 0
    """Of an agent: how many turns its model has had."""
    given: list[Given] = field(default_factory=list)
    """The retrievals made directly in it of which the model's share may still become known."""
    seen: Set[str] = frozenset()
    """Of a postprocessor: the ids of the nodes it got."""
    heard: Heard | None = None
    """Of a chat: what it has said so far, where it streams."""
    token: Token[Call | None] | None = None

    @property
    def outermost(self) -> bool:
        """True for a call that LlamaIndex makes of itself, and not as a part of another."""
        return self.parent is None or self.parent.kind is Kind.HANDLE

    def give(self, given: Given) -> None:
        """Remembers a retrieval."""
        self.given.append(given)
        if len(self.given) > PENDING_KEPT:
            del self.given[0]
