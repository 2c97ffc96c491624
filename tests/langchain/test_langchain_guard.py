"""The guard in retrievers, chains and agents: what the model reads, and what the step says of it."""

from __future__ import annotations

import asyncio

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever, EnsembleRetriever
from langchain_core.documents import Document
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from support.guards import guarding, judging
from support.langchain_agents import ANSWER, PARALLEL, QUESTION, SEQUENTIAL, agent, asked, search_tool
from support.langchain_parts import ListRetriever, call, documents
from support.scripted_engine import ScriptedEngine
from typing_extensions import TypedDict

from ragguard.capture.splitters import paragraphs
from ragguard.errors import InvalidInput
from ragguard.guard import Deduplicate
from ragguard_langchain import (
    DistractorFilter,
    GuardedRetriever,
    GuardMiddleware,
    RagGuardCallback,
    drop_distractors,
)

MODES = pytest.mark.parametrize("mode", ["sync", "async"])
DROPPED = [(2, "shelf-1"), (4, "shelf-3")]


async def run(runnable, given, config, mode):
    return runnable.invoke(given, config) if mode == "sync" else await runnable.ainvoke(given, config)


def ids(passages):
    return [passage.id for passage in passages]


def told(step):
    """What a step says: retrieved, given to the model, and of what was dropped the rank and the id."""
    dropped = [(drop.position, drop.passage.id) for drop in step.decision.dropped]
    before = step.candidates if step.candidates is not None else step.passages
    return ids(before), ids(step.passages), dropped


def compression(guard=None, retriever=None):
    return ContextualCompressionRetriever(
        base_compressor=DistractorFilter(guard or guarding()),
        base_retriever=retriever or ListRetriever(count=4),
    )


def chain(guard=None, retriever=None):
    return (
        {"context": retriever or ListRetriever(count=4), "question": RunnablePassthrough()}
        | drop_distractors(guard or guarding())
        | RunnableLambda(lambda given: " / ".join(one.id for one in given["context"]))
    )


def guarded_agent(*turns, guard=None, tools=None, **options):
    shelf = tools or [search_tool(ListRetriever(count=4))]
    return agent(*turns, tools=shelf, middleware=[GuardMiddleware(guard or guarding(), **options)])


def tool_messages(result):
    return [one for one in result["messages"] if isinstance(one, ToolMessage)]


@MODES
async def test_a_filter_keeps_the_very_documents_that_came(mode):
    given, keep = documents("shelf", 4, "x"), DistractorFilter(guarding())
    kept = (
        keep.compress_documents(given, "x") if mode == "sync" else await keep.acompress_documents(given, "x")
    )
    assert [id(one) for one in kept] == [id(given[0]), id(given[2])]
    assert len(given) == 4


@MODES
@pytest.mark.parametrize("kind", ["filter", "retriever"])
async def test_a_guarded_retrieval_is_one_step_with_its_decision(captured, config, kind, mode):
    guarded = compression() if kind == "filter" else GuardedRetriever(ListRetriever(count=4), guarding())
    found = await run(guarded, QUESTION, config, mode)
    assert ids(found) == ["shelf-0", "shelf-2"]
    (step,) = captured.run.steps
    assert told(step) == (["shelf-0", "shelf-1", "shelf-2", "shelf-3"], ["shelf-0", "shelf-2"], DROPPED)
    decision = step.decision
    assert decision.kept == step.passages
    assert (decision.status, decision.reason) == ("pruned", "UtilityThreshold")
    first = decision.dropped[0]
    assert (first.utility, first.p_abstain, first.p_relevant) == pytest.approx((-0.72, 0.1, 0.1))
    assert [len(part.passages) for part in step.sub_steps] == [4]


@MODES
async def test_a_link_of_a_chain(captured, config, mode):
    assert await run(chain(), QUESTION, config, mode) == "shelf-0 / shelf-2"
    (step,) = captured.run.steps
    assert told(step)[1:] == (["shelf-0", "shelf-2"], DROPPED)
    assert captured.run.question == QUESTION


async def test_a_link_streams(captured, config):
    assert [part async for part in chain().astream(QUESTION, config)] == ["shelf-0 / shelf-2"]
    assert told(captured.run.steps[0])[1:] == (["shelf-0", "shelf-2"], DROPPED)


@MODES
async def test_without_capture_and_outside_of_any_run(mode):
    link = drop_distractors(guarding(), documents="docs", query="q")
    kept = await run(link, {"docs": documents("shelf", 4, "x"), "q": "x", "other": 1}, None, mode)
    assert (ids(kept["docs"]), kept["other"]) == (["shelf-0", "shelf-2"], 1)
    assert await run(chain(), QUESTION, None, mode) == "shelf-0 / shelf-2"
    assert ids(await run(compression(), QUESTION, None, mode)) == ["shelf-0", "shelf-2"]


@MODES
async def test_two_retrievals_before_one_link_have_a_decision_each(captured, config, mode):
    both = {
        "context": {"a": ListRetriever(shelf="a", count=2), "b": ListRetriever(shelf="b", count=4)}
        | RunnableLambda(lambda found: found["a"] + found["b"]),
        "question": RunnablePassthrough(),
    } | drop_distractors(guarding())
    assert ids((await run(both, QUESTION, config, mode))["context"]) == ["a-0", "b-0", "b-2"]
    steps = {step.passages[0].metadata["source"]: told(step)[1:] for step in captured.run.steps}
    assert steps == {"a": (["a-0"], [(2, "a-1")]), "b": (["b-0", "b-2"], [(2, "b-1"), (4, "b-3")])}


@MODES
async def test_a_guarded_arm_of_an_ensemble(captured, config, mode):
    arms = [
        GuardedRetriever(ListRetriever(shelf="a", count=2), guarding()),
        ListRetriever(shelf="b", count=2),
    ]
    found = await run(EnsembleRetriever(retrievers=arms, weights=[0.5, 0.5]), QUESTION, config, mode)
    assert sorted(ids(found)) == ["a-0", "b-0", "b-1"]
    (step,) = captured.run.steps
    assert [drop.passage.id for drop in step.decision.dropped] == ["a-1"]
    assert sorted(ids(step.candidates)) == ["a-0", "a-1", "b-0", "b-1"]


def test_two_guards_are_one_decision(captured, config):
    twice = compression(retriever=GuardedRetriever(ListRetriever(count=4), guarding()))
    assert ids(twice.invoke(QUESTION, config)) == ["shelf-0", "shelf-2"]
    (step,) = captured.run.steps
    assert sorted(drop.passage.id for drop in step.decision.dropped) == ["shelf-1", "shelf-3"]


def test_a_handler_that_is_attached_twice_hears_of_it_once(captured, rg):
    handler = RagGuardCallback(rg)
    chain().invoke(QUESTION, {"callbacks": [handler, handler, RagGuardCallback(rg)]})
    assert told(captured.run.steps[0])[2] == DROPPED


@MODES
@pytest.mark.parametrize("turns", [SEQUENTIAL, PARALLEL], ids=["sequential", "parallel"])
async def test_an_agents_hops(captured, config, turns, mode):
    result = await run(guarded_agent(*turns), asked(), config, mode)
    for message in tool_messages(result):
        assert ids(message.artifact) == ["shelf-0", "shelf-2"]
        assert "shelf 1" not in message.content
        assert "shelf 0 about" in message.content
        assert message.content.count("\n\n") == 1
    steps = captured.run.steps
    assert len(steps) == len(tool_messages(result)) > 1
    for step in steps:
        assert told(step) == (["shelf-0", "shelf-1", "shelf-2", "shelf-3"], ["shelf-0", "shelf-2"], DROPPED)
        assert step.decision.dropped[0].passage.text == f"shelf 1 about {step.query}"
    assert captured.run.answer == ANSWER


@MODES
async def test_a_tool_that_gives_one_string(rg, captured, mode):
    @tool
    def wiki(query: str) -> str:
        """Reads the wiki."""
        return "\n\n".join(f"[{n}] wiki {n} about {query}" for n in range(4))

    splitters = {"wiki": paragraphs}
    asking = agent(
        call("wiki", query="x"),
        ANSWER,
        tools=[wiki],
        middleware=[GuardMiddleware(guarding(), tools=splitters)],
    )
    result = await run(asking, asked(), {"callbacks": [RagGuardCallback(rg, tools=splitters)]}, mode)
    assert tool_messages(result)[0].content == "[0] wiki 0 about x\n\n[2] wiki 2 about x"
    (step,) = captured.run.steps
    assert [drop.position for drop in step.decision.dropped] == [2, 4]
    assert [passage.text for passage in step.passages] == ["[0] wiki 0 about x", "[2] wiki 2 about x"]


@MODES
async def test_other_tools_and_failed_ones_pass(captured, config, mode):
    @tool
    def add(a: int, b: int) -> str:
        """Adds."""
        return f"shelf 1 about {a + b}"

    @tool
    def fails(query: str) -> str:
        """Fails."""
        return Command(update={"messages": [ToolMessage("no", tool_call_id="call-fails-x", status="error")]})

    asking = agent(
        call("add", a=1, b=2), call("fails", query="x"), ANSWER, tools=[add, fails],
        middleware=[GuardMiddleware(guarding(), tools={"fails": paragraphs})],
    )  # fmt: skip
    result = await run(asking, asked(), config, mode)
    assert [one.content for one in tool_messages(result)] == ["shelf 1 about 3", "no"]


def test_a_tool_that_gives_a_command(config, captured):
    @tool
    def search(query: str) -> Command:
        """Searches."""
        found = documents("shelf", 2, query)
        text = "".join(f"<doc>{one.page_content}</doc>\n" for one in found)
        message = ToolMessage(text, tool_call_id="call-search-x", artifact=found)
        return Command(update={"messages": [message]})

    asking = agent(
        call("search", query="x"), ANSWER, tools=[search], middleware=[GuardMiddleware(guarding())]
    )
    (message,) = tool_messages(asking.invoke(asked(), config))
    assert (message.content, ids(message.artifact)) == ("<doc>shelf 0 about x</doc>\n", ["shelf-0"])
    assert told(captured.run.steps[0])[1:] == (["shelf-0"], [(2, "shelf-1")])


def test_a_text_without_the_passages_is_left_as_it_is():
    from langgraph.prebuilt.tool_node import ToolCallRequest

    found = documents("shelf", 3, "x")
    message = ToolMessage("three results", tool_call_id="1", artifact=found)
    request = ToolCallRequest(call("search", query="x"), None, {}, None)
    fewer = GuardMiddleware(guarding()).wrap_tool_call(request, lambda request: message)
    assert (fewer.content, ids(fewer.artifact)) == ("three results", ["shelf-0", "shelf-2"])
    assert (message.content, len(message.artifact)) == ("three results", 3)


def test_one_document_given_twice(config, captured):
    @tool(response_format="content_and_artifact")
    def search(query: str) -> tuple[str, list[Document]]:
        """Finds the same again."""
        (found,) = documents("shelf", 1, query)
        return f"1. {found.page_content}\n2. {found.page_content}", [found, found]

    guard = guarding(policies=[Deduplicate()])
    result = guarded_agent(call("search", query="x"), ANSWER, guard=guard, tools=[search]).invoke(
        asked(), config
    )
    (message,) = tool_messages(result)
    assert (message.content, ids(message.artifact)) == ("1. shelf 0 about x", ["shelf-0"])
    assert told(captured.run.steps[0])[1:] == (["shelf-0"], [(2, "shelf-0")])


def test_a_tool_with_several_results_passes(config, captured):
    @tool
    def several(query: str) -> list:
        """Gives commands."""
        return [Command(update={"messages": [ToolMessage("shelf 1 about x", tool_call_id="call-several-x")]})]

    asking = guarded_agent(call("several", query="x"), ANSWER, tools=[several])
    assert [one.content for one in tool_messages(asking.invoke(asked(), config))] == ["shelf 1 about x"]
    assert captured.events == []


@MODES
async def test_a_guarded_node_of_a_graph(captured, config, mode):
    class State(TypedDict, total=False):
        question: str
        context: list[Document]
        answer: str

    retriever, link = ListRetriever(count=4), drop_distractors(guarding())

    async def search(state, config):
        return {"context": await run(retriever, state["question"], config, mode)}

    async def prune(state, config):
        return await run(link, state, config, mode)

    graph = StateGraph(State)
    graph.add_node("search", search)
    graph.add_node("prune", prune)
    graph.add_node("answer", lambda state: {"answer": state["context"][-1].id})
    for one, two in ((START, "search"), ("search", "prune"), ("prune", "answer"), ("answer", END)):
        graph.add_edge(one, two)
    result = await graph.compile().ainvoke({"question": QUESTION}, config)
    assert result["answer"] == "shelf-2"
    assert told(captured.run.steps[0])[1:] == (["shelf-0", "shelf-2"], DROPPED)


@MODES
@pytest.mark.parametrize("place", ["filter", "retriever", "link", "middleware"])
async def test_a_late_engine_keeps_everything_on_time(captured, config, place, mode):
    guard = guarding(ScriptedEngine(label=judging, gate=asyncio.Event()), budget_ms=50)
    await run(*guarded_at(place, guard), config, mode)
    (step,) = captured.run.steps
    assert (step.decision.status, step.decision.dropped) == ("timeout", [])
    assert (len(step.passages), captured.run.status) == (4, "ok")


def guarded_at(place, guard):
    """Something guarded, and what it is asked."""
    if place == "middleware":
        return guarded_agent(call("search", query="x"), ANSWER, guard=guard), asked()
    if place == "retriever":
        return GuardedRetriever(ListRetriever(count=4), guard), QUESTION
    return (compression(guard) if place == "filter" else chain(guard)), QUESTION


@pytest.mark.parametrize("place", ["filter", "retriever", "link", "middleware"])
async def test_cancellation_goes_through(captured, config, place):
    model = ScriptedEngine(label=judging, gate=asyncio.Event())
    guarded, given = guarded_at(place, guarding(model))
    # In a chain, since LangChain says nothing of a cancelled retriever on its own: the sweep ends that one.
    task = asyncio.create_task((RunnablePassthrough() | guarded).ainvoke(given, config))
    await model.until_running(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await model.until_running(0)
    (step,) = captured.run.steps
    assert (captured.run.status, step.decision) == ("cancelled", None)


def test_documents_without_a_text_are_kept_and_ranks_stay_true(captured, config):
    class Odd(ListRetriever):
        def _get_relevant_documents(self, query, *, run_manager):
            return [Document(id="blank", page_content=" "), *documents("shelf", 2, query)]

    assert ids(GuardedRetriever(Odd(), guarding()).invoke(QUESTION, config)) == ["blank", "shelf-0"]
    assert told(captured.run.steps[0])[2] == [(3, "shelf-1")]


def test_wrong_parts_are_refused_where_they_are_given():
    for make in (
        lambda: DistractorFilter("nano"),
        lambda: GuardedRetriever(ListRetriever(), "nano"),
        lambda: GuardedRetriever("shelf", guarding()),
        lambda: GuardMiddleware("nano"),
        lambda: GuardMiddleware(guarding(), tools={"search": 3}),
        lambda: drop_distractors("nano"),
        lambda: drop_distractors(guarding()).invoke({"question": "x"}),
        lambda: drop_distractors(guarding()).invoke({"context": ["text"], "question": "x"}),
        lambda: drop_distractors(guarding()).invoke({"context": []}),
    ):
        with pytest.raises(InvalidInput):
            make()
