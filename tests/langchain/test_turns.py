"""Turns follow causality: what waits for a retrieval comes after it, what runs beside it shares its turn."""

from __future__ import annotations

import operator
import random
import threading
import time
from types import SimpleNamespace
from typing import Annotated, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send
from support.captured import Captured, CapturedInStore
from support.langchain_agents import ANSWER, QUESTION, asked
from support.langchain_parts import ListRetriever, call, documents, says

from ragguard.capture.recorder import Recorder
from ragguard_langchain import RagGuardCallback


@tool(response_format="content_and_artifact")
def search(query: str) -> tuple[str, list]:
    """Searches without a retriever."""
    time.sleep(random.uniform(0, 0.005))
    return "found", documents("found", 1, query)


def called(query):
    return search.invoke(call("search", query=query))


def turns(captured):
    return sorted(((step.query, step.turn) for step in captured.run.steps), key=lambda one: (one[1], one[0]))


class Found(TypedDict, total=False):
    query: Annotated[str, lambda old, new: new]
    found: Annotated[list, operator.add]


def node(*queries):
    def run(state):
        return {"found": [called(query or state["query"]) for query in queries]}

    return run


async def run_graph(built, given, config, mode):
    return built.invoke(given, config) if mode == "invoke" else await built.ainvoke(given, config)


both = pytest.mark.parametrize("mode", ["invoke", "ainvoke"])


@both
async def test_sends_to_a_subgraph_share_a_turn(captured, config, mode):
    inner = StateGraph(Found).add_node("look", node("")).add_edge(START, "look").compile()
    graph = StateGraph(Found).add_node("sub", inner).add_node("after", node("after")).add_edge("sub", "after")
    graph.add_conditional_edges(START, lambda state: [Send("sub", {"query": f"q{n}"}) for n in range(5)])
    await run_graph(graph.compile(), {"query": QUESTION}, config, mode)
    assert turns(captured) == [*((f"q{n}", 0) for n in range(5)), ("after", 1)]


@both
async def test_agents_that_are_tools_have_the_same_turns(captured, config, mode):
    @tool
    def research(topic: str) -> str:
        """Asks another agent."""
        hops = [call("search", query=f"{topic}{n}") for n in range(2)]
        return create_agent(says(*hops, "found"), [search]).invoke(asked(topic))["messages"][-1].content

    topics = [call("research", topic=topic) for topic in "xyz"]
    built = create_agent(says(topics, call("research", topic="last"), ANSWER), [research])
    await run_graph(built, asked(), config, mode)
    assert turns(captured) == [
        *((f"{topic}{n}", n) for n in range(2) for topic in "xyz"),
        ("last0", 2),
        ("last1", 3),
    ]


@both
async def test_tool_calls_of_one_message_share_a_turn(captured, config, mode):
    calls = [call("search", query=f"q{n}") for n in range(6)]
    graph = StateGraph(MessagesState).add_node("tools", ToolNode([search])).add_edge(START, "tools")
    await run_graph(graph.compile(), {"messages": [AIMessage("", tool_calls=calls)]}, config, mode)
    await run_graph(create_agent(says(calls, ANSWER), [search]), asked(), config, mode)
    for run in captured.runs:
        assert [step.turn for step in run.steps] == [0] * 6


@both
@pytest.mark.parametrize("intake", [Captured, CapturedInStore])
async def test_steps_of_a_message_come_in_the_order_of_its_tool_calls(intake, mode):
    captured = intake()
    config = {"callbacks": [RagGuardCallback(SimpleNamespace(recorder=Recorder(captured)))]}
    quick_ended = threading.Event()

    @tool(response_format="content_and_artifact")
    def slow(query: str) -> tuple[str, list]:
        """Searches, and ends last."""
        quick_ended.wait(30)
        return "found", documents("found", 1, query)

    @tool
    def quick(query: str) -> str:
        """Asks a retriever twice."""
        texts = [one.page_content for n in (1, 2) for one in ListRetriever(count=1).invoke(f"{query} {n}")]
        quick_ended.set()
        return " ".join(texts)

    messages = (
        [call("slow", query="first"), call("quick", query="then")],
        [call("quick", query="last")],
        ANSWER,
    )
    await run_graph(create_agent(says(*messages), [slow, quick]), asked(), config, mode)
    assert [(step.index, step.turn, step.query) for step in captured.run.steps] == [
        (0, 0, "first"), (1, 0, "then 1"), (2, 1, "then 2"), (3, 2, "last 1"), (4, 3, "last 2"),
    ]  # fmt: skip


def test_a_streamed_chain_of_hops_has_a_turn_a_hop(captured, config):
    hop = RunnableLambda(lambda query: ListRetriever(count=1).invoke(query)[0].page_content)
    list((hop | hop | hop).stream(QUESTION, config))
    assert [step.turn for step in captured.run.steps] == [0, 1, 2]


def test_tasks_of_the_functional_api_share_a_turn_where_their_retrievals_overlap(captured, config):
    together = threading.Barrier(2)
    meeting = ListRetriever(fault=lambda query: together.wait(30) < 0 or None)

    @task
    def look(query, retriever):
        retriever.invoke(query)

    @entrypoint()
    def flow(question):
        look("one", ListRetriever()).result()
        look("two", ListRetriever()).result()
        for one in [look("left", meeting), look("right", meeting)]:
            one.result()
        return ANSWER

    flow.invoke(QUESTION, config)
    assert sorted(turns(captured)) == [("left", 2), ("one", 0), ("right", 2), ("two", 1)]
