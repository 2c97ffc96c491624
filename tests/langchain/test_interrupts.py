"""Interrupt and resume: one run, however often a person was asked."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from support.captured import CapturedInStore
from support.langchain_agents import ANSWER, QUESTION, SEQUENTIAL, agent, asked, search_tool
from support.langchain_parts import call, says

from ragguard import RagGuard
from ragguard.capture.handle import RunHandle
from ragguard.capture.recorder import Recorder
from ragguard.capture.splitters import paragraphs
from ragguard_langchain import RagGuardCallback
from ragguard_langchain.call_tree import CallTree


@tool
def ask_human(query: str) -> str:
    """Asks a person."""
    return str(interrupt({"question": query}))


@pytest.fixture
def captured():
    """The store decides which run a resumed call goes on with."""
    return CapturedInStore()


def interruptible(*turns):
    return agent(*turns, tools=[search_tool(), ask_human], checkpointer=InMemorySaver())


def on_thread(config, thread="t1"):
    return {**config, "configurable": {"thread_id": thread}}


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_an_interrupted_run_goes_on_when_it_is_resumed(captured, rg, mode):
    def fresh():
        return on_thread({"callbacks": [RagGuardCallback(rg)]})

    built = interruptible(
        (call("search", query="1 firm"), call("ask_human", query="which?")),
        call("search", query="2 founder"),
        ANSWER,
    )
    if mode == "invoke":
        built.invoke(asked(), fresh())
    else:
        await built.ainvoke(asked(), fresh())
    assert (captured.run.status, captured.run.answer) == ("interrupted", None)
    assert rg.recorder.open_runs == 0
    if mode == "invoke":
        built.invoke(Command(resume="the blue one"), fresh())
    else:
        await built.ainvoke(Command(resume="the blue one"), fresh())
    run = captured.run
    assert (run.status, run.question, run.answer) == ("ok", QUESTION, ANSWER)
    assert [(step.query, step.status) for step in run.steps] == [("1 firm", "ok"), ("2 founder", "ok")]
    assert run.metadata["thread_id"] == "t1"


def test_a_resumed_run_says_nothing_of_the_tool_that_waited(captured, config, caplog):
    built = interruptible(call("search", query="hop"), call("ask_human", query="?"), ANSWER)
    built.invoke(asked(), on_thread(config))
    built.invoke(Command(resume="yes"), on_thread(config))
    assert captured.run.answer == ANSWER
    assert "answer_content" not in captured.run.metadata
    assert "without a retrieval" not in caplog.text


def test_an_interrupted_run_on_whose_thread_something_else_is_asked_ends_as_interrupted(captured, config):
    built = interruptible(call("search", query="hop"), call("ask_human", query="which?"), ANSWER)
    built.invoke(asked(), on_thread(config))
    fresh = interruptible(*SEQUENTIAL)
    fresh.invoke(asked("Something else?"), on_thread(config))
    assert [(run.question, run.status) for run in captured.runs] == [
        (QUESTION, "interrupted"),
        ("Something else?", "ok"),
    ]


def test_threads_of_conversation_do_not_resume_each_other(captured, config):
    first, second = (
        interruptible(call("search", query=f"hop {n}"), call("ask_human", query="?"), f"answer {n}")
        for n in range(2)
    )
    first.invoke(asked("question 0"), on_thread(config, "a"))
    second.invoke(asked("question 1"), on_thread(config, "b"))
    second.invoke(Command(resume="x"), on_thread(config, "b"))
    first.invoke(Command(resume="x"), on_thread(config, "a"))
    assert [(run.question, run.answer) for run in captured.runs] == [
        ("question 0", "answer 0"),
        ("question 1", "answer 1"),
    ]


def test_an_agent_stopped_before_its_tools_goes_on_too(captured, config):
    built = create_agent(
        says(*SEQUENTIAL), [search_tool()], checkpointer=InMemorySaver(), interrupt_before=["tools"]
    )
    built.invoke({**asked(), "x": 1}, {**on_thread(config), "metadata": {"ragguard_name": "stopped"}})
    for _ in range(2):
        built.invoke(None, on_thread(config))
    run = captured.run
    assert (run.status, run.answer, run.name, len(run.steps)) == ("ok", ANSWER, "stopped", 2)


def test_a_declared_tool_that_is_interrupted_is_recorded_as_that(captured, rg):
    @tool
    def careful(query: str) -> str:
        """Asks before it searches."""
        interrupt("may I?")
        return "a\n\nb"

    config = on_thread({"callbacks": [RagGuardCallback(rg, tools={"careful": paragraphs})]})
    built = agent(call("careful", query="hop"), ANSWER, tools=[careful], checkpointer=InMemorySaver())
    built.invoke(asked(), config)
    built.invoke(Command(resume=True), config)
    assert [(s.query, s.status, len(s.passages)) for s in captured.run.steps] == [
        ("hop", "interrupted", 0),
        ("hop", "ok", 2),
    ]
    assert captured.run.status == "ok"


def test_an_interrupt_inside_a_run_of_ones_own(captured, recorder, config):
    built = interruptible(call("search", query="hop"), call("ask_human", query="which?"), ANSWER)
    with RunHandle(recorder, QUESTION):
        built.invoke(asked(), on_thread(config))
        built.invoke(Command(resume="yes"), on_thread(config))
    assert (captured.run.status, captured.run.answer, len(captured.run.steps)) == ("ok", ANSWER, 1)


def test_interrupted_runs_that_nobody_resumes_leave_nothing_open():
    captured = CapturedInStore()
    recorder = Recorder(captured)
    config = {"callbacks": [RagGuardCallback(SimpleNamespace(recorder=recorder))]}
    for n in range(20):
        interruptible(call("search", query="hop"), call("ask_human", query="?")).invoke(
            asked(), on_thread(config, str(n))
        )
    assert (recorder.open_runs, len(CallTree.of(recorder).open_calls)) == (0, 0)
    assert {run.status for run in captured.runs} == {"interrupted"}


@pytest.mark.parametrize("store", [None, "runs.db"])
def test_run_that_was_resumed_twice_counts_once_for_each_part(tmp_path, store):
    built = interruptible(
        (call("search", query="1 firm"), call("ask_human", query="which?")),
        (call("search", query="2 founder"), call("ask_human", query="sure?")),
        ANSWER,
    )
    with RagGuard("nano", store=store and tmp_path / store, scorers=()) as rg:
        config = on_thread({"callbacks": [RagGuardCallback(rg)]})
        for parts, given in enumerate((asked(), Command(resume="the blue one"), Command(resume="yes")), 1):
            built.invoke(given, config)
            assert rg.flush(timeout=30).captured == parts
        (run,) = rg.runs()
        assert (run.status, len(run.steps)) == ("ok", 2)
        interruptible(call("search", query="3 town"), ANSWER).invoke(asked(), on_thread(config, "t2"))
        assert (rg.flush(timeout=30).captured, len(rg.runs())) == (4, 2)


def test_a_run_that_another_ragguard_has_begun_counts_where_it_goes_on(tmp_path):
    built = interruptible((call("search", query="1 firm"), call("ask_human", query="which?")), ANSWER)
    for given in (asked(), Command(resume="the blue one")):
        with RagGuard("nano", store=tmp_path / "runs.db", scorers=()) as rg:
            built.invoke(given, on_thread({"callbacks": [RagGuardCallback(rg)]}))
            assert rg.flush(timeout=30).captured == 1
            assert len(rg.runs()) == 1


def test_parts_of_a_thread_are_sampled_alike(tmp_path):
    turns = (
        (call("search", query="1 firm"), call("ask_human", query="which?")),
        call("search", query="2 town"),
        ANSWER,
    )
    graphs = [interruptible(*turns) for _ in range(8)]
    for part in (asked(), Command(resume="the blue one")):
        with RagGuard("nano", store=tmp_path / "runs.db", scorers=(), sample_rate=0.5) as rg:
            for n, graph in enumerate(graphs):
                graph.invoke(part, on_thread({"callbacks": [RagGuardCallback(rg)]}, f"t{n}"))
            rg.flush(timeout=30)
            runs = list(rg.runs())
    assert 0 < len(runs) < 8
    assert {(run.status, len(run.steps)) for run in runs} == {("ok", 2)}
