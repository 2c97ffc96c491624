"""Runs that go on in another process: a graph that was interrupted for a person, workers that share one store."""

from __future__ import annotations

import pytest
from langchain_core.runnables import RunnableLambda
from support.langchain_parts import ListRetriever
from support.program import run_program

from ragguard import RagGuard
from ragguard.storage.sqlite.store import Store
from ragguard_langchain import RagGuardCallback

QUESTION = "Who founded the firm based in Oslo?"

WORKER = """
import os, pickle, signal, sys
from typing import TypedDict
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from ragguard import RagGuard
from ragguard_langchain import RagGuardCallback
from support.langchain_parts import ListRetriever

path, saved, part, end = sys.argv[1:]
QUESTION = "Who founded the firm based in Oslo?"


class State(TypedDict, total=False):
    question: str
    approved: str
    answer: str


def first(state):
    ListRetriever().invoke("1 firm")
    ListRetriever().invoke("2 town")
    return {}


def ask(state):
    return {"approved": interrupt("may I go on?")}


def second(state):
    ListRetriever().invoke("3 founder")
    return {"answer": "Ada Berg"}


graph = StateGraph(State)
for name, node in (("first", first), ("ask", ask), ("second", second)):
    graph.add_node(name, node)
for before, after in ((START, "first"), ("first", "ask"), ("ask", "second"), ("second", END)):
    graph.add_edge(before, after)

saver = InMemorySaver()
if part == "second":
    with open(saved, "rb") as file:
        storage, writes, blobs = pickle.load(file)
    for thread, spaces in storage.items():
        saver.storage[thread].update(spaces)
    saver.writes.update(writes); saver.blobs.update(blobs)
rg = RagGuard("nano", store=path, scorers=("utility",))
config = {
    "callbacks": [RagGuardCallback(rg)], "configurable": {"thread_id": "t1"},
    "metadata": {"ragguard_references": ["Ada Berg"]} if part == "first" else {},
}
app = graph.compile(checkpointer=saver)
app.invoke({"question": QUESTION} if part == "first" else Command(resume="yes"), config)
assert rg.flush(60)
if part == "first":
    with open(saved, "wb") as file:
        pickle.dump(({k: dict(v) for k, v in saver.storage.items()}, dict(saver.writes), dict(saver.blobs)), file)
if end == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
rg.close()
"""


def stored(path):
    store = Store(path, read_only=True)
    try:
        return list(store.runs()), {run.id: store.scores(run.id) for run in store.runs()}
    finally:
        store.close()


def test_interrupted_graph_of_a_killed_process_goes_on_in_another_one(tmp_path):
    path, saved = tmp_path / "s.db", tmp_path / "checkpoint"
    run_program(WORKER, path, saved, "first", "kill", check=False)
    ((run,), _) = stored(path)
    assert (run.status, run.question, run.answer) == ("interrupted", QUESTION, None)
    assert [step.query for step in run.steps] == ["1 firm", "2 town"]
    run_program(WORKER, path, saved, "second", "end")
    ((run,), scores) = stored(path)
    assert (run.status, run.question, run.answer) == ("ok", QUESTION, "Ada Berg")
    assert run.references == ["Ada Berg"]
    assert [(s.index, s.turn, s.query) for s in run.steps] == [
        (0, 0, "1 firm"),
        (1, 1, "2 town"),
        (2, 2, "3 founder"),
    ]
    assert "question_source" not in run.metadata
    assert {score.step_id for score in scores[run.id]} - {""} == {step.id for step in run.steps}


@pytest.fixture
def rg():
    return RagGuard("nano", store=None, scorers=())


def test_run_goes_on_where_metadata_name_it(rg):
    config = {"callbacks": [RagGuardCallback(rg)], "metadata": {"ragguard_run_id": "x"}}
    RunnableLambda(lambda q: ListRetriever().invoke("hop 1")).invoke("one", config)
    config["metadata"] = {"ragguard_resume": "x"}
    RunnableLambda(lambda q: ListRetriever().invoke("hop 2")).invoke("two", config)
    rg.flush(10)
    (run,) = rg.runs()
    assert (run.metadata["ragguard.caller_id"], run.question) == ("x", "one")
    assert [(s.index, s.query) for s in run.steps] == [(0, "hop 1"), (1, "hop 2")]
    assert "ragguard_resume" not in run.metadata
    rg.close()


def test_a_resumed_part_without_a_retrieval_gives_its_answer_to_the_run(rg):
    """And one that continues nothing, and retrieves nothing, is no run."""
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.func import entrypoint
    from langgraph.types import Command, interrupt

    def application(hops):
        @entrypoint(checkpointer=InMemorySaver())
        def flow(question: str):
            for query in hops:
                ListRetriever().invoke(query)
            return {"answer": interrupt("?")}

        return flow

    for thread, hops in (("a", ["hop"]), ("b", [])):
        config = {"callbacks": [RagGuardCallback(rg)], "configurable": {"thread_id": thread}}
        flow = application(hops)
        flow.invoke(QUESTION, config)
        flow.invoke(Command(resume="Ada Berg"), config)
    rg.flush(10)
    (run,) = rg.runs()
    assert (run.question, run.answer, run.status) == (QUESTION, "Ada Berg", "ok")
    rg.close()
