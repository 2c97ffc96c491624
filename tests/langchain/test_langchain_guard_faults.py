"""The guard where LangChain is at its most lively: cancelled, interrupted, streamed, in graphs and in threads."""

from __future__ import annotations

import json

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from support.guards import guarding
from support.langchain_agents import ANSWER, PARALLEL, SEQUENTIAL, agent, asked, search_tool
from support.langchain_parts import ListRetriever, call, documents

from ragguard_langchain import (
    GuardMiddleware,
    RagGuardCallback,
)

MODES = pytest.mark.parametrize("mode", ["sync", "async"])
DROPPED = [(2, "shelf-1"), (4, "shelf-3")]


def dropped(step):
    return [(drop.position, drop.passage.id) for drop in step.decision.dropped]


def guarded_agent(*turns, guard=None, retriever=None, **options):
    tools = [search_tool(retriever or ListRetriever(count=4))]
    return agent(*turns, tools=tools, middleware=[GuardMiddleware(guard or guarding())], **options)


@MODES
async def test_an_interrupted_tool_is_guarded_when_it_goes_on(captured, rg, mode):
    def search(query: str):
        """Asks first, then searches."""
        found = documents("shelf", 4, f"{query} {interrupt('where?')}")
        return "\n\n".join(one.page_content for one in found), found

    searching = tool("search", response_format="content_and_artifact")(search)
    built = agent(
        (call("search", query="1"), call("search", query="2")), ANSWER, tools=[searching],
        middleware=[GuardMiddleware(guarding())], checkpointer=InMemorySaver(),
    )  # fmt: skip

    async def go(given):
        config = {"callbacks": [RagGuardCallback(rg)], "configurable": {"thread_id": "t"}}
        return built.invoke(given, config) if mode == "sync" else await built.ainvoke(given, config)

    waiting = await go(asked())
    resumed = Command(resume={one.id: "there" for one in waiting["__interrupt__"]})
    result = await go(resumed)
    assert [one.content for one in result["messages"] if one.type == "tool"] == [
        f"shelf 0 about {n} there\n\nshelf 2 about {n} there" for n in (1, 2)
    ]
    run = captured.run
    assert (run.status, run.answer) == ("ok", ANSWER)
    assert [dropped(step) for step in run.steps if step.status == "ok"] == [DROPPED, DROPPED]


@pytest.mark.parametrize("captures", [True, False])
async def test_a_streamed_agent_gives_every_token_and_nothing_of_the_guards(captured, config, captures):
    """An endpoint that sends each event as JSON, with a handler of its own for custom events."""
    built, strict, tokens, kinds = guarded_agent(*SEQUENTIAL), Strict(), [], set()
    callbacks = [strict, *(config["callbacks"] if captures else ())]
    async for event in built.astream_events(asked(), {"callbacks": callbacks}, version="v2"):
        json.dumps(event, default=as_json)
        kinds.add(event["event"])
        if event["event"] == "on_chat_model_stream":
            tokens.append(event["data"]["chunk"].content)
    assert "".join(tokens) == ANSWER
    assert "on_tool_end" in kinds
    assert "on_custom_event" not in kinds
    assert strict.custom == []
    assert [dropped(step) for run in captured.runs for step in run.steps] == [DROPPED, DROPPED] * captures


def as_json(value):
    """What such an endpoint knows how to send: LangChain's own objects, and nothing else."""
    if isinstance(value, (BaseMessage, Document)):
        return dumpd(value)
    assert type(value).__module__.startswith(("langchain", "langgraph")), type(value)
    return str(value)


@MODES
async def test_a_graph_of_ones_own_takes_the_middleware_as_the_wrapper_of_its_tools(captured, config, mode):
    guard = GuardMiddleware(guarding())
    tools = ToolNode(
        [search_tool(ListRetriever(count=4))],
        wrap_tool_call=guard.wrap_tool_call, awrap_tool_call=guard.awrap_tool_call,
    )  # fmt: skip
    graph = StateGraph(MessagesState)
    graph.add_node("plan", lambda state: {"messages": [AIMessage("", tool_calls=list(PARALLEL[0]))]})
    graph.add_node("tools", tools)
    for one, two in ((START, "plan"), ("plan", "tools"), ("tools", END)):
        graph.add_edge(one, two)
    outer = StateGraph(MessagesState)
    outer.add_node("inner", graph.compile())
    outer.add_edge(START, "inner")
    outer.add_edge("inner", END)
    built = outer.compile()
    result = built.invoke(asked(), config) if mode == "sync" else await built.ainvoke(asked(), config)
    assert [len(one.artifact) for one in result["messages"] if one.type == "tool"] == [2, 2]
    assert [(step.turn, dropped(step)) for step in captured.run.steps] == [(0, DROPPED), (0, DROPPED)]


class Strict(BaseCallbackHandler):
    """Sees what other handlers of the application see."""

    def __init__(self):
        self.custom = []

    def on_custom_event(self, name, data, *, run_id, **kwargs):
        self.custom.append(name)
