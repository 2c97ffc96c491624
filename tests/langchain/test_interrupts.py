"""Interrupt and resume: one run, however often a person was asked, also in another process."""

from __future__ import annotations

import pytest
from langchain.agents import create_agent
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from support.captured import CapturedInStore
from support.langchain_agents import ANSWER, QUESTION, SEQUENTIAL, agent, asked, search_tool
from support.langchain_parts import ListRetriever, call, says

from ragguard import RagGuard
from ragguard.capture.handle import RunHandle
from ragguard.capture.splitters import paragraphs
from ragguard_langchain import RagGuardCallback


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
    assert len(rg.recorder.here.runs) == 0
    if mode == "invoke":
        built.invoke(Command(resume="the blue one"), fresh())
    else:
        await built.ainvoke(Command(resume="the blue one"), fresh())
    run = captured.run
    assert (run.status, run.question, run.answer) == ("ok", QUESTION, ANSWER)
    assert [(step.query, step.status) for step in run.steps] == [("1 firm", "ok"), ("2 founder", "ok")]
    assert run.metadata["thread_id"] == "t1"


def test_an_interrupted_run_on_whose_thread_something_else_is_asked_ends_as_interrupted(captured, config):
    built = interruptible(call("search", query="hop"), call("ask_human", query="which?"), ANSWER)
    built.invoke(asked(), on_thread(config))
    fresh = interruptible(*SEQUENTIAL)
    fresh.invoke(asked("Something else?"), on_thread(config))
    assert [(run.question, run.status) for run in captured.runs] == [
        (QUESTION, "interrupted"),
        ("Something else?", "ok"),
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


@pytest.fixture
def whole():
    return RagGuard("nano", store=None, scorers=())


def test_run_goes_on_where_metadata_name_it(whole):
    config = {"callbacks": [RagGuardCallback(whole)], "metadata": {"ragguard_run_id": "x"}}
    RunnableLambda(lambda q: ListRetriever().invoke("hop 1")).invoke("one", config)
    config["metadata"] = {"ragguard_resume": "x"}
    RunnableLambda(lambda q: ListRetriever().invoke("hop 2")).invoke("two", config)
    whole.flush(10)
    (run,) = whole.runs()
    assert (run.metadata["ragguard.caller_id"], run.question) == ("x", "one")
    assert [(s.index, s.query) for s in run.steps] == [(0, "hop 1"), (1, "hop 2")]
    assert "ragguard_resume" not in run.metadata
    whole.close()


def test_a_resumed_part_without_a_retrieval_gives_its_answer_to_the_run(whole):
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
        config = {"callbacks": [RagGuardCallback(whole)], "configurable": {"thread_id": thread}}
        flow = application(hops)
        flow.invoke(QUESTION, config)
        flow.invoke(Command(resume="Ada Berg"), config)
    whole.flush(10)
    (run,) = whole.runs()
    assert (run.question, run.answer, run.status) == (QUESTION, "Ada Berg", "ok")
    whole.close()
