"""One open span that matters, and the run it belongs to: what the spans inside it have to know of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextvars import Token
from dataclasses import replace
from typing import Any

from llama_index.core.tools import BaseTool, QueryEngineTool, RetrieverTool

from ragguard.capture.decisions import Verdict
from ragguard.capture.identity import RunIdentity
from ragguard.capture.splitters import Splitter
from ragguard.capture.turns import TurnKey
from ragguard.records import TraceContext
from ragguard_llamaindex.kinds import ASKING, Kind, choosers_of
from ragguard_llamaindex.messages import question_of, question_of_event, tool_text
from ragguard_llamaindex.options import AnswerOf, fields_of
from ragguard_llamaindex.shares import Given
from ragguard_llamaindex.streams import Heard

PENDING_KEPT = 64
"""How many retrievals of one call are remembered until it is known what the model gets of them."""


class Invocation:
    """One run as LlamaIndex sees it; the recorder hears of it when its first retrieval begins.

    Like a call it is made in a hook, where a dataclass that fills all its fields costs microseconds.
    """

    question = ""
    name = ""
    references: list[str] | None = None
    identity: RunIdentity | None = None
    """Of a run to which tags give an id."""
    metadata: Mapping[str, Any] | None = None
    said = False
    """Whether tags say something of it."""
    answer: AnswerOf | None = None
    """Finds the answer where the caller says that it is."""
    answers = 0
    """Of a run that the user opened: how many answers it got."""
    sub_questions: list[str] | None = None
    started_ns = 0
    span_id = ""
    """LlamaIndex's id of the call that this is."""
    trace: TraceContext | None = None
    bare: Call | None = None
    """The retriever that this run is, as long as nothing else happens in it."""
    begun = False
    over = False
    waits = False
    """True while the run waits for a person's answer."""

    def __init__(self, run_id: str, owned: bool) -> None:
        self.run_id = run_id
        self.owned = owned
        """False where it is the user's own, made by `rg.run(...)`."""


class Call:
    """One open span that matters. Holds no object of the application's."""

    parent: Call | None = None
    step_id = ""
    """The retrieval that this is, or is a part of."""
    tool = ""
    turn: TurnKey | None = None
    asked = ""
    """The query as this call got it."""
    meant = ""
    """The query as its author wrote it, before a tool dressed it up."""
    dresses = False
    """Of a tool: that it does so."""
    choosers: Set[int] = frozenset()
    """Of an agent or a router: the retrievers that find its tools."""
    turns = 0
    """Of an agent: how many turns its model has had."""
    given: list[Given] | None = None
    """The retrievals made directly in it of which the model's share may still become known."""
    seen: Set[str] = frozenset()
    """Of a postprocessor: the ids of the nodes it got."""
    verdicts: Sequence[Verdict] = ()
    """Of a postprocessor or a retrieval: what guards decided in it."""
    standalone = ""
    """Of a chat: the question that it made of the user's words and of what was said before."""
    agent = ""
    """The agent at work."""
    workflow_step = ""
    """The step at work of a workflow of the user's own."""
    names: Mapping[int, str] = {}
    """Of a router: the names of its tools, by the identity of their engines."""
    retrieves = False
    """Whether anything was retrieved in it."""
    splitter: Splitter | None = None
    """Of a declared tool: what takes its output apart."""
    holds = False
    """Whether it keeps the run that the user opened from ending."""
    heard: Heard | None = None
    """Of a chat: what it has said so far, where it streams."""
    token: Token[Call | None]
    name = ""
    """Of a bare retriever: its class."""
    started_ns = 0
    trace: TraceContext | None = None
    over = False
    """Of a bare retriever: that it was recorded in one go."""
    given_run: Invocation | None = None

    def __init__(self, id: str, kind: Kind) -> None:
        self.id, self.kind = id, kind

    @property
    def run(self) -> Invocation:
        """The run it belongs to. A bare retriever, which is one, makes it when something happens in it."""
        if self.given_run is None:
            run = self.given_run = Invocation(hexadecimal(self.id), owned=True)
            run.question, run.name, run.started_ns = self.asked, self.name, self.started_ns
            run.span_id, run.trace = self.id, self.trace
            run.bare, self.step_id = self, run.run_id
        return self.given_run

    @property
    def outermost(self) -> bool:
        """True for a call that LlamaIndex makes of itself, and not as a part of another."""
        return self.parent is None or self.parent.kind is Kind.HANDLE

    def give(self, given: Given) -> None:
        """Remembers a retrieval."""
        if self.given is None:
            self.given = []
        self.given.append(given)
        if len(self.given) > PENDING_KEPT:
            del self.given[0]


def inner_call(
    kind: Kind, span_id: str, around: Call, arguments: Mapping[str, Any], instance: object
) -> Call:
    """A call inside another: it inherits where that one stands."""
    call = Call(span_id, kind)
    call.given_run, call.parent = around.run, around
    call.step_id, call.tool = around.step_id, around.names.get(id(instance)) or around.tool
    call.agent, call.workflow_step = around.agent, around.workflow_step
    call.turn = _turn(around, kind, span_id)
    if kind in ASKING or kind is Kind.TOOL:
        call.asked = asked_in(kind, arguments)
        call.meant = around.meant if around.dresses or call.asked == around.asked else call.asked
    else:
        call.asked, call.meant = around.asked, around.meant
    describe_call(call, instance)
    return call


def describe_call(call: Call, instance: object) -> None:
    """What the calls inside have to know of this one's object."""
    if call.kind is Kind.TOOL and isinstance(instance, BaseTool):
        call.dresses = isinstance(instance, (RetrieverTool, QueryEngineTool))
        call.tool = instance.metadata.name or ""
    elif call.kind is Kind.WORKFLOW or call.kind is Kind.FANOUT:
        call.choosers = choosers_of(instance)


def asked_in(kind: Kind, arguments: Mapping[str, Any]) -> str:
    """The query in a call's arguments."""
    if kind is Kind.TOOL:
        return tool_text(arguments)
    if kind is Kind.WORKFLOW:
        return question_of_event(arguments.get("start_event"))
    return question_of(arguments)


def given_in(kind: Kind, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a call was given, by name: its arguments, or the fields of the event that starts a workflow."""
    return fields_of(arguments.get("start_event")) if kind is Kind.WORKFLOW else arguments


def _turn(around: Call, kind: Kind, span_id: str) -> tuple[Any, Any] | None:
    """The outermost fork decides who runs in parallel with whom."""
    if around.turn is not None:
        group, branch = around.turn
        return (group, (branch, span_id)) if around.kind is Kind.FANOUT else around.turn
    if around.kind is Kind.FANOUT:
        return around.id, span_id
    if around.kind is Kind.WORKFLOW and around.turns and kind is Kind.TOOL:
        return (around.id, around.turns), span_id
    return None


def next_turn(around: Call | None) -> None:
    """Counts a turn of the agent around."""
    while around is not None and around.kind is not Kind.WORKFLOW:
        around = around.parent
    if around is not None:
        around.turns += 1


def tell(around: Call, verdicts: Sequence[Verdict], *, parts: bool = False) -> None:
    """Leaves what guards decided to the retrieval or postprocessor around, which tells of it when it ends."""
    holder: Call | None = around
    while holder is not None and holder.kind is not Kind.RETRIEVER and holder.kind is not Kind.POSTPROCESSOR:
        holder, parts = holder.parent, True
    if holder is not None:
        holder.verdicts = [*holder.verdicts, *(replace(one, part=one.part or parts) for one in verdicts)]


def hexadecimal(span_id: str) -> str:
    """The identifier in a span's id."""
    return span_id[-36:].replace("-", "")


def nodes_in(arguments: Mapping[str, Any]) -> Any:
    """The nodes in a call's arguments, whatever a class of the user's calls them."""
    nodes = arguments.get("nodes")
    if nodes is None:
        nodes = next((value for value in arguments.values() if isinstance(value, (list, tuple))), ())
    return nodes if isinstance(nodes, (list, tuple)) else ()
