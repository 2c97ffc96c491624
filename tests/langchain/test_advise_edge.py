"""Graphs of one's own whose conditional edge follows advice."""

from __future__ import annotations

from typing import TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from support.advised import CASE, PATIENT, PLAN, finds

import ragguard
from ragguard import RagGuard, connect
from ragguard.errors import InvalidInput
from ragguard.records import Advice
from ragguard_langchain import RagGuardCallback, advise_edge


class State(TypedDict, total=False):
    question: str
    found: list[str]
    asked: int
    answer: str


def search(state):
    asked = state.get("asked", 0)
    found = finds(PLAN[asked])
    ragguard.retrieved(PLAN[asked], found)
    return {"found": [*state.get("found", []), *(one.text for one in found)], "asked": asked + 1}


def answer(state):
    return {"answer": "done"}


def looping(edge, *, search=search, checkpointer=None, **nodes):
    graph = StateGraph(State).add_node("search", search).add_node("answer", answer)
    for name, node in nodes.items():
        graph.add_node(name, node).add_edge(name, "search")
    graph.add_edge(START, "search").add_conditional_edges("search", edge).add_edge("answer", END)
    return graph.compile(checkpointer=checkpointer)


@pytest.fixture(scope="module")
def nano():
    return connect("nano")


@pytest.fixture
def rg(nano):
    with RagGuard(nano, store=None, scorers=()) as rg:
        yield rg


def watching(rg, **configurable):
    return {"callbacks": [RagGuardCallback(rg)], "configurable": configurable}


async def go(graph, given, config, mode):
    return graph.invoke(given, config) if mode == "invoke" else await graph.ainvoke(given, config)


MODES = pytest.mark.parametrize("mode", ["invoke", "ainvoke"])


@MODES
async def test_a_graph_answers_once_what_it_found_suffices(rg, mode):
    graph = looping(advise_edge("search", "answer", budget_ms=PATIENT))
    done = await go(graph, {"question": CASE.question}, watching(rg), mode)
    assert (done["asked"], done["answer"]) == (2, "done")
    rg.flush(timeout=60)
    (run,) = rg.runs()
    assert [step.query for step in run.steps] == CASE.sub_questions
    assert [step.advice.action for step in run.steps] == ["continue", "answer"]


@MODES
async def test_never_more_hops_than_allowed_and_each_call_counts_its_own(rg, mode):
    graph = looping(advise_edge("search", "answer", max_hops=1))
    for _ in range(2):
        assert (await go(graph, {"question": CASE.question}, watching(rg), mode))["asked"] == 1
    with rg.run(CASE.question):
        for _ in range(2):
            assert (await go(graph, {"question": CASE.question}, {}, mode))["asked"] == 1


@MODES
async def test_a_graph_that_nobody_captures_keeps_to_its_hops_and_says_so_once(mode, caplog):
    graph = looping(advise_edge("search", "answer", max_hops=3))
    for _ in range(2):
        assert (await go(graph, {"question": CASE.question}, {}, mode))["asked"] == 3
    assert caplog.text.count("outside of any captured run") == 1


@pytest.mark.parametrize("action", ["rephrase", "distrust", "continue"])
def test_other_advice_leads_elsewhere_where_there_is_a_node_for_it(rg, monkeypatch, action):
    """The advice is given by hand: which action is right is the adviser's to say."""
    monkeypatch.setattr(type(rg.advice), "advise_captured", lambda *args: Advice(action))
    went = []

    def note(name):
        return lambda state: went.append(name) or {}

    nodes = {"reword": note("rephrase"), "check": note("distrust")}
    edge = advise_edge("search", "answer", rephrase="reword", distrust="check", max_hops=2)
    looping(edge, **nodes).invoke({"question": CASE.question}, watching(rg))
    assert went == ([] if action == "continue" else [action])
    looping(advise_edge("search", "answer", max_hops=2)).invoke({"question": CASE.question}, watching(rg))
    assert len(went) <= 1


def test_the_nodes_that_it_may_lead_to_are_drawn():
    graph = looping(
        advise_edge("search", "answer", rephrase="reword"), reword=lambda state: {}, other=lambda state: {}
    )
    edges = {(one.source, one.target) for one in graph.get_graph().edges if one.conditional}
    assert edges == {("search", "search"), ("search", "answer"), ("search", "reword")}


def test_a_count_that_fails_is_said_once_and_the_edge_counts(rg, caplog):
    edge = advise_edge("search", "answer", max_hops=2, hops=lambda state: state["no such key"])
    assert looping(edge).invoke({"question": CASE.question}, watching(rg))["asked"] == 2
    assert caplog.text.count("hops= of advise_edge failed") == 1


@pytest.mark.parametrize(
    ("ends", "settings", "argument"),
    [
        (("", "answer"), {}, "more"),
        (("search", None), {}, "enough"),
        (("search", "answer"), {"rephrase": 3}, "rephrase"),
        (("search", "answer"), {"hops": 3}, "hops"),
        (("search", "answer"), {"max_hops": 0}, "max_hops"),
        (("search", "answer"), {"budget_ms": -1}, "budget_ms"),
    ],
)
def test_wrong_settings_are_refused_at_once(ends, settings, argument):
    with pytest.raises(InvalidInput, match=f"^{argument}: got "):
        advise_edge(*ends, **settings)
