"""LangGraph: supersteps, fan-out, subgraphs, tool nodes, agents inside agents."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send
from support.langchain_agents import ANSWER, PARALLEL, QUESTION, SEQUENTIAL, agent, asked, hops, search_tool
from support.langchain_parts import ListRetriever, call, says

from ragguard.capture.handle import RunHandle


class Hops(TypedDict):
    question: str
    found: Annotated[list, operator.add]
    answer: str


def retrieve_node(query):
    def node(state, config: RunnableConfig):
        return {"found": ListRetriever(shelf=query).invoke(query, config)}

    return node


def answer_node(state):
    return {"answer": ANSWER}


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_nodes_of_one_superstep_share_a_turn(captured, config, mode):
    graph = StateGraph(Hops)
    for name in ("a", "b"):
        graph.add_node(name, retrieve_node(name))
        graph.add_edge(START, name)
        graph.add_edge(name, "c")
    graph.add_node("c", retrieve_node("c"))
    graph.add_node("answer", answer_node)
    graph.add_edge("c", "answer")
    graph.add_edge("answer", END)
    built = graph.compile()
    if mode == "invoke":
        built.invoke({"question": QUESTION}, config)
    else:
        await built.ainvoke({"question": QUESTION}, config)
    assert (captured.run.question, captured.run.answer) == (QUESTION, ANSWER)
    assert hops(captured.run) == [("a", 0, "ok"), ("b", 0, "ok"), ("c", 1, "ok")]


def test_hops_inside_one_node_follow_each_other(captured, config):
    def node(state):
        return {"found": ListRetriever().invoke("first") + ListRetriever().invoke("second")}

    graph = StateGraph(Hops)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.compile().invoke({"question": QUESTION}, config)
    assert [(step.query, step.turn) for step in captured.run.steps] == [("first", 0), ("second", 1)]


def test_fan_out_with_send(captured, config):
    graph = StateGraph(Hops)
    graph.add_node("one", lambda state: {"found": ListRetriever().invoke(state["query"])})
    graph.add_conditional_edges(START, lambda state: [Send("one", {"query": f"sub {n}"}) for n in range(3)])
    graph.compile().invoke({"question": QUESTION}, config)
    assert hops(captured.run) == [("sub 0", 0, "ok"), ("sub 1", 0, "ok"), ("sub 2", 0, "ok")]


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_a_subgraph_belongs_to_its_graphs_run(captured, config, mode):
    inner = agent(*PARALLEL)
    graph = StateGraph(MessagesState)
    graph.add_node(
        "before", lambda state: {"messages": [AIMessage(ListRetriever().invoke("0 before")[0].page_content)]}
    )
    graph.add_node("agent", inner)
    graph.add_edge(START, "before")
    graph.add_edge("before", "agent")
    built = graph.compile()
    if mode == "invoke":
        built.invoke(asked(), config)
    else:
        await built.ainvoke(asked(), config)
    assert hops(captured.run) == [("0 before", 0, "ok"), ("1a", 1, "ok"), ("1b", 1, "ok"), ("2", 2, "ok")]
    assert captured.run.answer == ANSWER


def test_an_agent_as_the_tool_of_an_agent(captured, config):
    @tool
    def research(topic: str) -> str:
        """Asks another agent."""
        return agent(*SEQUENTIAL).invoke(asked(topic))["messages"][-1].content

    agent(call("research", topic="Oslo"), "It was Ada Berg", tools=[research]).invoke(asked(), config)
    run = captured.run
    assert (run.question, run.answer) == (QUESTION, "It was Ada Berg")
    assert [(step.query, step.turn) for step in run.steps] == [
        ("1 firm in Oslo", 0),
        ("2 founder of Fjord", 1),
    ]


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_a_tool_node_runs_the_calls_of_one_message_in_one_turn(captured, config, mode):
    model = says(*PARALLEL)
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([search_tool()]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    built = graph.compile()
    if mode == "invoke":
        built.invoke(asked(), config)
    else:
        await built.ainvoke(asked(), config)
    assert hops(captured.run) == [("1a", 0, "ok"), ("1b", 0, "ok"), ("2", 1, "ok")]


def test_two_graphs_in_one_run_do_not_share_turns(captured, recorder, config):
    with RunHandle(recorder, QUESTION):
        agent(*SEQUENTIAL).invoke(asked(), config)
        agent(*SEQUENTIAL).invoke(asked(), config)
    assert [step.turn for step in captured.run.steps] == [0, 1, 2, 3]
    assert captured.run.answer == ANSWER
