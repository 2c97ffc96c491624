"""The guard in retrievers, chains and agents: what the model reads, and what which step says of it."""

from __future__ import annotations

import asyncio

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever, EnsembleRetriever
from langchain_core.documents import Document
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import create_retriever_tool, tool
from langgraph.types import Command
from support.captured import ids
from support.guards import guarded_ids, guarding, judging
from support.langchain_agents import ANSWER, QUESTION, agent, asked, search_tool
from support.langchain_parts import ListRetriever, call, documents
from support.scripted_engine import ScriptedEngine

from ragguard.capture.splitters import paragraphs
from ragguard.errors import InvalidInput
from ragguard_langchain import (
    DistractorFilter,
    GuardedRetriever,
    GuardMiddleware,
    RagGuardCallback,
)

MODES = pytest.mark.parametrize("mode", ["sync", "async"])
DROPPED = [(2, "shelf-1"), (4, "shelf-3")]


async def run(runnable, given, config, mode):
    return runnable.invoke(given, config) if mode == "sync" else await runnable.ainvoke(given, config)


def compression(guard=None, retriever=None):
    return ContextualCompressionRetriever(
        base_compressor=DistractorFilter(guard or guarding()),
        base_retriever=retriever or ListRetriever(count=4),
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
    assert guarded_ids(step) == (
        ["shelf-0", "shelf-1", "shelf-2", "shelf-3"],
        ["shelf-0", "shelf-2"],
        DROPPED,
    )
    decision = step.decision
    assert decision.kept == step.passages
    assert (decision.status, decision.reason) == ("pruned", "UtilityThreshold")
    first = decision.dropped[0]
    assert (first.utility, first.p_abstain, first.p_relevant) == pytest.approx((-0.72, 0.1, 0.1))
    assert [len(part.passages) for part in step.sub_steps] == [4]


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
    assert (message.content, ids(message.artifact)) == ("shelf 0 about x", ["shelf-0"])
    assert guarded_ids(captured.run.steps[0])[1:] == (["shelf-0"], [(2, "shelf-1")])


def guarded_at(place, guard):
    """Something guarded, and what it is asked."""
    if place == "middleware":
        return guarded_agent(call("search", query="x"), ANSWER, guard=guard), asked()
    if place == "retriever":
        return GuardedRetriever(ListRetriever(count=4), guard), QUESTION
    return compression(guard), QUESTION


@pytest.mark.parametrize("place", ["filter", "retriever", "middleware"])
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


def test_wrong_parts_are_refused_where_they_are_given():
    for make in (
        lambda: DistractorFilter("nano"),
        lambda: GuardedRetriever(ListRetriever(), "nano"),
        lambda: GuardedRetriever("shelf", guarding()),
        lambda: GuardMiddleware("nano"),
        lambda: GuardMiddleware(guarding(), tools={"search": 3}),
    ):
        with pytest.raises(InvalidInput):
            make()
    with pytest.raises(InvalidInput, match="does not retrieve"):
        GuardMiddleware(guarding(), tools={"search": "paragraphs"})


A, B, C, D = (
    Document(id=name, page_content=text)
    for name, text in zip("ABCD", ("w 0 about", "w 1 about", "w 2 about", "w 3 about"), strict=True)
)


@tool
def wiki(query: str) -> str:
    """Reads a wiki."""
    return "\n\n".join(one.page_content for one in documents("wiki", 3, query))


@MODES
async def test_tool_result_that_the_guard_splits_is_the_guard_of_the_declared_step(captured, rg, mode):
    tools = {"wiki": paragraphs}
    built = agent(
        call("wiki", query="hop"), ANSWER, tools=[wiki], middleware=[GuardMiddleware(guarding(), tools=tools)]
    )
    await run(built, asked(), {"callbacks": [RagGuardCallback(rg, tools=tools)]}, mode)
    (step,) = captured.run.steps
    assert (step.query, step.tool, step.turn, step.status) == ("hop", "wiki", 0, "ok")
    assert [passage.text for passage in step.candidates] == [f"wiki {n} about hop" for n in range(3)]
    assert [passage.text for passage in step.passages] == ["wiki 0 about hop", "wiki 2 about hop"]
    assert [drop.position for drop in step.decision.dropped] == [2]


def test_a_guarded_retriever_in_a_declared_tool_of_one_string(captured, rg):
    guarded = create_retriever_tool(
        GuardedRetriever(ListRetriever(count=3), guarding()), "search", "Searches."
    )
    built = agent(call("search", query="hop"), ANSWER, tools=[guarded])
    built.invoke(asked(), {"callbacks": [RagGuardCallback(rg, tools={"search": paragraphs})]})
    (step,) = captured.run.steps
    assert [drop.passage.id for drop in step.decision.dropped] == ["shelf-1"]
    assert [passage.text for passage in step.passages] == ["shelf 0 about hop", "shelf 2 about hop"]
    assert len(step.candidates) == 3


async def test_decision_about_documents_that_nobody_saw_retrieved_stands_nowhere_and_that_is_said(
    captured, config, caplog
):
    keep = DistractorFilter(guarding())
    chain = RunnableLambda(lambda query: keep.compress_documents(documents("db", 2, query), query))
    assert [one.id for one in await run(chain, "hop", config, "sync")] == ["db-0"]
    assert captured.runs == []
    assert "judged passages of a retrieval that was not captured" in caplog.text


@MODES
async def test_guards_at_every_level_are_one_step(captured, config, mode):
    arms = [GuardedRetriever(ListRetriever(shelf=name, count=2), guarding()) for name in "ab"]
    whole = ContextualCompressionRetriever(
        base_compressor=DistractorFilter(guarding(threshold=1.0)),
        base_retriever=EnsembleRetriever(retrievers=arms, weights=[0.5, 0.5]),
    )
    found = await run(whole, QUESTION, config, mode)
    (step,) = captured.run.steps
    assert ids(step.passages) == ids(found)
    assert len(found) == 1
    assert sorted(ids(step.candidates)) == ["a-0", "a-1", "b-0", "b-1"]
    assert {drop.passage.id for drop in step.decision.dropped} == {"a-0", "a-1", "b-0", "b-1"} - {found[0].id}
    for drop in step.decision.dropped:
        assert step.candidates[drop.position - 1].id == drop.passage.id


async def test_calls_whose_ids_repeat_have_a_decision_each(captured, config):
    """Some models number their calls anew in each turn."""
    turns = [{**call("search", query=query), "id": "call_0"} for query in ("one", "two")]
    tools = [
        create_retriever_tool(ListRetriever(), "search", "Searches.", response_format="content_and_artifact")
    ]
    guarded = agent(*turns, ANSWER, tools=tools, middleware=[GuardMiddleware(guarding())])
    await guarded.ainvoke(asked(), config)
    assert [(step.query, guarded_ids(step)[2]) for step in captured.run.steps] == [
        ("one", [(2, "shelf-1")]), ("two", [(2, "shelf-1")]),
    ]  # fmt: skip
