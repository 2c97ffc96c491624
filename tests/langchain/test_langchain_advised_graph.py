"""A graph of one's own whose conditional edge asks for advice, as the docs write it."""

from __future__ import annotations

from typing import TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from support.advised import CASE, PATIENT, PLAN, finds

import ragguard
from ragguard import RagGuard
from ragguard.advice.loop import LoopAdviser
from ragguard_langchain import RagGuardCallback


class State(TypedDict, total=False):
    question: str
    hops: int


def search(state):
    hops = state.get("hops", 0)
    ragguard.retrieved(PLAN[hops], finds(PLAN[hops]))
    return {"hops": hops + 1}


def looping(edge):
    graph = StateGraph(State).add_node("search", search).add_node("answer", lambda state: {})
    graph.add_edge(START, "search").add_conditional_edges("search", edge, ["search", "answer"])
    return graph.add_edge("answer", END).compile()


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_graph_answers_once_what_it_found_suffices(mode):
    adviser = LoopAdviser(max_hops=6, budget_ms=PATIENT)

    def edge(state):
        return "answer" if adviser.after(state["hops"]).enough else "search"

    async def aedge(state):
        return "answer" if (await adviser.aafter(state["hops"])).enough else "search"

    with RagGuard("nano", store=None, scorers=()) as rg:
        given, config = {"question": CASE.question}, {"callbacks": [RagGuardCallback(rg)]}
        if mode == "invoke":
            done = looping(edge).invoke(given, config)
        else:
            done = await looping(aedge).ainvoke(given, config)
        rg.flush(timeout=60)
        (run,) = rg.runs()
    assert done["hops"] == 2
    assert [step.advice.action for step in run.steps] == ["continue", "answer"]
