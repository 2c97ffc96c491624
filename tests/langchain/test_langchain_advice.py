"""Agents of LangChain that stop when they are advised to, with nano's own advice; what they do about their tools."""

from __future__ import annotations

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from support.advised import ANSWER, CASE, PATIENT, PLAN, TROUBLES, check_stopped, troubled
from support.langchain_advised import (
    SYNC_AND_ASYNC,
    Searches,
    go,
    search,
    searches,
    searching,
    watching,
)
from support.langchain_agents import agent, asked
from support.langchain_parts import Says, call

from ragguard import RagGuard
from ragguard.errors import InvalidInput
from ragguard_langchain import AdviceMiddleware

MODES = pytest.mark.parametrize("mode", ["invoke", "ainvoke", "stream", "astream"])


@pytest.fixture
def rg(nano):
    with RagGuard(nano, store=None, scorers=()) as rg:
        yield rg


@MODES
async def test_an_agent_answers_once_what_it_found_suffices(rg, mode):
    model = searching(*PLAN)
    built = create_agent(model, [search], middleware=[AdviceMiddleware(max_hops=6, budget_ms=PATIENT)])
    messages = await go(built, asked(CASE.question), watching(rg), mode)
    assert messages[-1].text == ANSWER
    assert len(searches(messages)) == 2
    rg.flush(timeout=60)
    (run,) = rg.runs()
    check_stopped(run, model.heard)


@MODES
async def test_never_more_hops_than_allowed(rg, mode):
    model = searching("a", ("b", "c"), "d", "e", "f")
    built = create_agent(model, [search], middleware=[AdviceMiddleware(max_hops=2, budget_ms=PATIENT)])
    messages = await go(built, asked(CASE.question), watching(rg), mode)
    assert [one.tool_call_id for one in searches(messages)] == [f"call-search-{one}" for one in "abc"]
    assert messages[-1].text == ANSWER
    assert "No further search" in model.heard[-1][1]


@SYNC_AND_ASYNC
async def test_an_agent_that_nobody_captures_keeps_to_its_hops_and_says_so_once(mode, caplog):
    for _ in range(2):
        built = create_agent(searching(*PLAN), [search], middleware=[AdviceMiddleware(max_hops=3)])
        messages = await go(built, asked(CASE.question), {}, mode)
        assert (len(searches(messages)), messages[-1].text) == (3, ANSWER)
    assert caplog.text.count("outside of a captured run") == 1


@SYNC_AND_ASYNC
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_the_loop_goes_on_where_the_engine_does_not(trouble, mode, caplog):
    with troubled(trouble) as (rg, budget_ms):
        middleware = AdviceMiddleware(max_hops=5, budget_ms=budget_ms)
        built = create_agent(searching("a", "b", "c"), [search], middleware=[middleware])
        messages = await go(built, asked(CASE.question), watching(rg), mode)
        assert (len(searches(messages)), messages[-1].text) == (3, ANSWER)
        assert caplog.text.count("goes on searching") == 1
        rg.flush(timeout=5)
        (run,) = rg.runs()
        assert {step.advice.action for step in run.steps} == {"continue"}
        assert {step.advice.status for step in run.steps} == {"timeout" if trouble == "slow" else "error"}


@SYNC_AND_ASYNC
async def test_advice_knows_what_was_found_before_an_interrupt(rg, mode):
    @tool
    def ask_human(query: str) -> str:
        """Asks a person."""
        return str(interrupt(query))

    first, second = CASE.sub_questions
    turns = [
        call("search", query=first),
        call("ask_human", query="?"),
        call("search", query=second),
        call("search", query="x"),
    ]
    model = Searches(turns=[*turns, ANSWER], heard=[], disable_streaming=True)
    middleware = AdviceMiddleware(search_tools=["search"], budget_ms=PATIENT)
    built = create_agent(model, [search, ask_human], middleware=[middleware], checkpointer=InMemorySaver())
    on_thread = {"thread_id": "t"}
    await go(built, asked(CASE.question), {**watching(rg), "configurable": on_thread}, mode)
    await go(built, Command(resume="yes"), {**watching(rg), "configurable": on_thread}, mode)
    assert [tools for tools, _ in model.heard][-1] == ["ask_human"]
    rg.flush(timeout=60)
    (run,) = rg.runs()
    assert [(step.query, step.advice.action) for step in run.steps] == [
        (first, "continue"),
        (second, "answer"),
    ]


async def test_a_model_that_searches_without_a_tool_is_stopped_all_the_same(rg, caplog):
    blocks = [
        {"type": "text", "text": "Maybe."},
        {"type": "tool_use", "id": "call-search-x", "name": "search"},
    ]
    says = [AIMessage(blocks, tool_calls=[call("search", query="x")]) for _ in range(2)]
    built = agent(*says, tools=[search], middleware=[AdviceMiddleware(max_hops=1)])
    messages = await go(built, asked(CASE.question), watching(rg))
    assert len(searches(messages)) == 1
    assert (messages[-1].text, messages[-1].tool_calls, len(messages[-1].content)) == ("Maybe.", [], 1)
    assert caplog.text.count("in which it could only answer") == 1


async def test_tools_that_do_not_search_stay_as_they_are(rg):
    @tool
    def book(query: str) -> str:
        """Books something."""
        return "booked"

    model = searching(*PLAN)
    built = create_agent(
        model, [search, book], middleware=[AdviceMiddleware(max_hops=1, search_tools={"search"})]
    )
    model.turns = [call("search", query="a"), call("book", query="b"), ANSWER]
    messages = await go(built, asked(CASE.question), watching(rg))
    assert [one.name for one in searches(messages)] == ["search", "book"]
    assert [tools for tools, _ in model.heard] == [["search", "book"], ["book"], ["book"]]


async def test_an_agent_without_tools_for_searching_still_gives_its_structured_answer(rg):
    class Found(BaseModel):
        person: str

    model = Says(turns=[call("search", query="a"), call("Found", person="Ada")])
    built = create_agent(
        model, [search], response_format=ToolStrategy(Found), middleware=[AdviceMiddleware(max_hops=1)]
    )
    assert built.invoke(asked(CASE.question), watching(rg))["structured_response"] == Found(person="Ada")


@SYNC_AND_ASYNC
async def test_a_name_of_no_tool_is_refused_at_the_first_call(rg, mode):
    middleware = AdviceMiddleware(max_hops=1, search_tools=["serach"])
    built = create_agent(searching("a", "b"), [search], middleware=[middleware])
    with pytest.raises(InvalidInput, match=r"^search_tools: got \['serach'\]; .* are \['search'\]"):
        await go(built, asked(CASE.question), watching(rg), mode)


async def test_tools_that_are_offered_later_are_no_error_and_named_once(rg, caplog):
    class OfferedLater(AgentMiddleware):
        """Offers the tools once the model has been asked so often."""

        def __init__(self, after):
            super().__init__()
            self.left = after

        def wrap_model_call(self, request, handler):
            self.left -= 1
            return handler(request.override(tools=[]) if self.left >= 0 else request)

    for _ in range(2):
        middleware = [OfferedLater(1), AdviceMiddleware(max_hops=1, search_tools=["search"])]
        built = create_agent(searching("a", "b"), [search], middleware=middleware)
        assert (await go(built, asked(CASE.question), watching(rg)))[-1].text == ANSWER
        built.invoke(asked(CASE.question), watching(rg))
    assert caplog.text.count("not offered ['search'] of search_tools") == 1
    assert "it is offered []" in caplog.text
