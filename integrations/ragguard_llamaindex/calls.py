"""The calls that capture follows: their kinds, their runs, and the state that the calls inside need."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence, Set
from contextvars import ContextVar, Token
from enum import Enum, auto
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, ToolCall
from llama_index.core.agent.workflow.base_agent import BaseWorkflowAgent
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.chat_engine import CondensePlusContextChatEngine, CondenseQuestionChatEngine
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
from llama_index.core.workflow import Event, Workflow
from workflows.runtime.types.results import StepWorkerStateContextVar

from ragguard.capture.call_paths import CallPath, task_path
from ragguard.capture.decisions import Verdict
from ragguard.capture.events import TurnKey
from ragguard.capture.handle import RunHandle
from ragguard.capture.pipeline_run import PipelineRun
from ragguard.capture.retrievals import WholeRun
from ragguard.capture.shapes import fields_of, query_in, question_in
from ragguard.capture.splitters import Splitter
from ragguard_llamaindex.messages import StreamedAnswer, tool_arguments


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
    if isinstance(instance, AgentWorkflow):
        return frozenset().union(*map(choosers_of, instance.agents.values()))
    found = getattr(instance, "tool_retriever", None) or getattr(instance, "_retriever", None)
    return frozenset((id(found.retriever),)) if isinstance(found, ObjectRetriever) else frozenset()


ASKED = "ragguard.asked"
"""Metadata key of a run whose question was condensed from a conversation: what the user said."""
ASKING_OR_TOOL = ASKING | {Kind.TOOL}
_INHERITED = ("step_id", "agent", "workflow_step", "turn", "asked", "call_id")
"""The attributes that a call has from the one around it, until its own are known."""
SENT_KEPT = 256
"""The number of events of a workflow of which it is remembered which step has sent them."""
STEPS_KEPT = 64
"""The number of retrievals of one tool call that are remembered until the tool ends."""


class Invocation(PipelineRun):
    """A run as LlamaIndex sees it."""

    span_id = ""
    """LlamaIndex's id of the outermost call."""
    whole: WholeRun | None = None
    """The record of a retriever call that is the whole run, as long as nothing else happens in it."""


class Call:
    """An open span that capture follows. Holds no object of the application's, except events on their way."""

    parent: Call | None = None
    step_id = ""
    """The id of the retrieval that this call is, or is a part of."""
    tool = ""
    call_id = ""
    """The id that the model gave to the call of a tool that this call is a part of."""
    turn: TurnKey = ()
    """The parallel branches that the call is in."""
    path: CallPath = ()
    """The calls around this one, and itself."""
    replies = 0
    """The number of times that a workflow has asked a model; the tool calls of one reply are parallel."""
    asked = ""
    """The query in the arguments of this call."""
    choosers: Set[int] = frozenset()
    """The identities of the retrievers by which an agent or a router finds its tools."""
    retrieved: list[str] | None = None
    """The ids of the steps that were made in this tool call, at any depth."""
    verdicts: Sequence[Verdict] = ()
    """The decisions that guards made inside a postprocessor."""
    condenses = False
    """True for a chat engine that makes a standalone question of what the user says."""
    standalone = ""
    """The question that a chat engine made of the user's words and of what was said before."""
    agent = ""
    """The name of the agent at work."""
    workflow_step = ""
    """The name of the step at work in a workflow of the user's own."""
    names: Mapping[int, str] = {}
    """The names of the tools of a sub-question engine, by the identity of their engines."""
    sent: Mapping[int, tuple[Event, str]] = {}
    """The latest events of which one step of this workflow has sent several, with the step's span, by their
    identities."""
    retrieves = False
    """True once anything was retrieved inside the call."""
    calls_tools = False
    """True once a tool was called in a workflow."""
    splitter: Splitter | None = None
    """The function that takes the output of a declared tool apart."""
    holds = False
    """True while the call keeps a run that the user opened from ending."""
    streamed: StreamedAnswer | None = None
    """The part of its answer that a streaming chat engine has given so far."""
    token: Token[Call | None]
    name = ""
    """The class of the call's object; for a step of a workflow the step's name."""
    started_ns = 0
    run: Invocation
    top_k: int | None = None
    """How many nodes a retriever is asked for; None where it does not say so."""

    def __init__(self, id: str, kind: Kind) -> None:
        self.id, self.kind = id, kind

    @property
    def outermost(self) -> bool:
        """True for a call that is not a part of another captured call."""
        return self.parent is None or self.parent.kind is Kind.HANDLE


def chain(call: Call | None) -> Iterator[Call]:
    """Yields a call and those around it, the innermost first."""
    while call is not None:
        yield call
        call = call.parent


class ProcessCalls:
    """The open calls of one process. A forked child begins without any: its parent ends them."""

    __slots__ = ("asked", "by_id", "current", "handles")

    def __init__(self) -> None:
        self.by_id: dict[str, Call] = {}
        self.asked: dict[str, Invocation] = {}
        """The runs of the model calls under way, by their spans."""
        self.current: ContextVar[Call | None] = ContextVar("ragguard_llamaindex_call", default=None)
        self.handles: weakref.WeakKeyDictionary[RunHandle, Call] = weakref.WeakKeyDictionary()
        """The calls that stand for the runs that the user opened."""


def note_step(call: Call | None, step_id: str) -> None:
    """Notes a step with every tool that it was made in."""
    for one in chain(call):
        if one.kind is Kind.TOOL:
            one.retrieved = [*(one.retrieved or ())[-STEPS_KEPT:], step_id]


def inner_call(
    kind: Kind, span_id: str, around: Call, arguments: Mapping[str, Any], instance: object
) -> Call:
    """Returns a call inside another one, with the state that it inherits."""
    call = Call(span_id, kind)
    call.run, call.parent = around.run, around
    call.path = (*(around.path or task_path()), span_id)
    for name in _INHERITED:
        setattr(call, name, getattr(around, name))
    call.tool = around.names.get(id(instance)) or around.tool
    if kind in ASKING_OR_TOOL:
        call.asked = asked_in(kind, arguments)
    if kind is Kind.STEP:
        _begin_step(call, around, arguments)
    elif kind in ASKING_OR_TOOL and not call.step_id:
        if around.kind is Kind.FANOUT:
            call.turn = (*around.turn, (around.id, call.id))
        if kind is not Kind.TOOL:
            _note_question(call, around)
    describe_call(call, instance)
    return call


def _begin_step(call: Call, around: Call, arguments: Mapping[str, Any]) -> None:
    call.name, call.choosers = call.id[:-37].rpartition(".")[2], around.choosers
    given = [*arguments.values(), *arguments.get("kwargs", {}).values()]
    events = [value for value in given if isinstance(value, Event)]
    for event in events:
        sent, sender = around.sent.get(id(event), (None, ""))
        if sent is event:  # the steps that it and the events beside it begin do not wait for each other
            call.turn = (*around.turn, ((around.id, sender), call.id))
        if isinstance(event, ToolCall):
            call.turn, call.call_id = (*around.turn, ((around.id, around.replies), call.id)), event.tool_id
    if around.agent:
        agents = (getattr(event, "current_agent_name", "") for event in events)
        around.agent = call.agent = next(filter(None, agents), around.agent)
    else:
        call.workflow_step = call.name


def note_sent(step: Call) -> None:
    """Notes the events that a step of a workflow has sent, where these are several."""
    state = StepWorkerStateContextVar.get(None)
    entries = getattr(getattr(state, "sends", None), "entries", ())  # which only newer versions have
    workflow = step.parent
    if workflow is not None and len(entries) > 1:
        sent = {id(one.event): (one.event, step.id) for one in entries[-SENT_KEPT:]}
        workflow.sent = {**workflow.sent, **sent}
        workflow.sent = dict([*workflow.sent.items()][-SENT_KEPT:])


def _note_question(call: Call, around: Call) -> None:
    """Notes the question without references to the conversation, which a chat engine has made."""
    if not around.condenses or around.standalone or not call.asked:
        return
    around.standalone = call.asked
    run = around.run
    if around.outermost and run.owned and not run.begun and run.question == around.asked != call.asked:
        run.question, run.metadata = call.asked, {**run.metadata, ASKED: around.asked}


def describe_call(call: Call, instance: object) -> None:
    """Notes the attributes of a call's object that the calls inside need."""
    if isinstance(instance, BaseTool):
        call.tool = instance.metadata.name or ""
    elif call.kind is Kind.WORKFLOW:
        call.choosers, call.workflow_step = choosers_of(instance), ""
        agent = getattr(instance, "root_agent", None) if isinstance(instance, AgentWorkflow) else None
        call.agent = agent or (instance.name if isinstance(instance, BaseWorkflowAgent) else "")
    elif call.kind is Kind.FANOUT:
        call.choosers = choosers_of(instance)
        if isinstance(instance, SubQuestionQueryEngine):
            engines = getattr(instance, "_query_engines", {})
            call.names = {id(engine): name or "" for name, engine in engines.items()}
    elif call.kind is Kind.ENGINE:
        call.condenses = isinstance(instance, (CondenseQuestionChatEngine, CondensePlusContextChatEngine))


def asked_in(kind: Kind, arguments: Mapping[str, Any]) -> str:
    """Returns the query in a call's arguments."""
    if kind is Kind.TOOL:
        return query_in(tool_arguments(arguments))
    return question_in(given_in(kind, arguments))


def given_in(kind: Kind, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the input of a call by name: its arguments, or the fields of the event that starts a workflow."""
    return fields_of(arguments.get("start_event")) if kind is Kind.WORKFLOW else arguments


def hexadecimal(span_id: str) -> str:
    """Returns the identifier in a span's id."""
    return span_id[-36:].replace("-", "")


def nodes_in(arguments: Mapping[str, Any]) -> Any:
    """Returns the nodes in a call's arguments, under any name of the argument."""
    nodes = arguments.get("nodes")
    if nodes is None:
        nodes = next((value for value in arguments.values() if isinstance(value, (list, tuple))), ())
    return nodes if isinstance(nodes, (list, tuple)) else ()
