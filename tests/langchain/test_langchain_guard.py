"""The guard in retrievers, chains and agents: what the model reads, and what the step says of it."""

from __future__ import annotations

import asyncio

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_core.documents import Document
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from support.guards import guarding, judging
from support.langchain_agents import ANSWER, QUESTION, agent, asked, search_tool
from support.langchain_parts import ListRetriever, call, documents
from support.scripted_engine import ScriptedEngine
from typing_extensions import TypedDict

from ragguard.capture.splitters import paragraphs
from ragguard.errors import InvalidInput
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
