"""Agents of LangChain that stop when they are advised to, with nano's own advice."""

from __future__ import annotations

import asyncio

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from support.advised import ANSWER, CASE, PATIENT, PLAN, TROUBLES, check_stopped, troubled
from support.langchain_advised import SYNC_AND_ASYNC, Searches, go, search, searches, searching, watching
from support.langchain_agents import asked
from support.langchain_parts import call
from support.polling import eventually
from support.scripted_engine import ScriptedEngine

from ragguard import DistractorGuard, RagGuard, connect
from ragguard.errors import InvalidInput
from ragguard_langchain import AdviceMiddleware, GuardMiddleware

MODES = pytest.mark.parametrize("mode", ["invoke", "ainvoke", "stream", "astream"])


@pytest.fixture(scope="module")
def nano():
    return connect("nano")


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
    assert caplog.text.count("outside of any captured run") == 1


@SYNC_AND_ASYNC
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_the_loop_goes_on_where_the_engine_does_not(trouble, mode, caplog):
    with troubled(trouble) as (rg, budget_ms):
        middleware = AdviceMiddleware(max_hops=5, budget_ms=budget_ms)
        built = create_agent(searching("a", "b", "c"), [search], middleware=[middleware])
        messages = await go(built, asked(CASE.question), watching(rg), mode)
        assert (len(searches(messages)), messages[-1].text) == (3, ANSWER)
        assert caplog.text.count("its loop goes on") == 1
        rg.flush(timeout=5)
        (run,) = rg.runs()
        assert {step.advice.action for step in run.steps} == {"continue"}
        assert {step.advice.status for step in run.steps} == {"timeout" if trouble == "slow" else "error"}


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({"max_hops": 0}, "max_hops"),
        ({"budget_ms": 0}, "budget_ms"),
        ({"search_tools": "search"}, "search_tools"),
    ],
)
def test_wrong_settings_are_refused_at_once(settings, argument):
    with pytest.raises(InvalidInput, match=f"^{argument}: got "):
        AdviceMiddleware(**settings)


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


@pytest.mark.parametrize(
    "prompt", ["Be brief.", SystemMessage([{"type": "text", "text": "Be brief."}])], ids=["text", "blocks"]
)
async def test_the_system_message_stays_in_front_of_the_note(rg, prompt):
    model = searching("a", "b")
    built = create_agent(model, [search], system_prompt=prompt, middleware=[AdviceMiddleware(max_hops=1)])
    await go(built, asked(CASE.question), watching(rg))
    assert model.heard[0][1] == "Be brief."
    assert model.heard[1][1].startswith("Be brief.\n\nNo further search")


async def test_advice_is_about_what_a_guard_let_through(rg, nano):
    guard = GuardMiddleware(DistractorGuard(nano, threshold=0.5, budget_ms=PATIENT))
    built = create_agent(searching(*PLAN), [search], middleware=[AdviceMiddleware(budget_ms=PATIENT), guard])
    messages = await go(built, asked(CASE.question), watching(rg), "ainvoke")
    assert len(searches(messages)) == 2
    rg.flush(timeout=60)
    (run,) = rg.runs()
    assert [(len(step.candidates), len(step.passages)) for step in run.steps] == [(2, 1), (2, 1)]
    assert run.steps[1].advice.action == "answer"


async def test_an_agent_that_is_cancelled_while_it_waits_for_advice(nano):
    engine = ScriptedEngine(gate=asyncio.Event())
    with RagGuard(engine, store=None, scorers=()) as rg:
        built = create_agent(searching("a", "b"), [search], middleware=[AdviceMiddleware(budget_ms=PATIENT)])
        task = asyncio.create_task(built.ainvoke(asked(CASE.question), watching(rg)))
        await asyncio.to_thread(eventually, lambda: engine.running)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(eventually, lambda: not engine.running)
        rg.flush(timeout=5)
        assert [run.status for run in rg.runs()] == ["cancelled"]


async def test_a_conversation_counts_each_question_anew(rg):
    built = create_agent(
        searching("a", "b", "c"), [search], middleware=[AdviceMiddleware(max_hops=1)], checkpointer=InMemorySaver()
    )  # fmt: skip
    config = {**watching(rg), "configurable": {"thread_id": "t"}}
    for turn in (1, 2):
        messages = await go(built, {"messages": [HumanMessage(CASE.question)]}, config)
        assert len(searches(messages)) == turn
