"""Agents of LangChain that stop when they are advised to, with nano's own advice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRetryMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from support.langchain_agents import ANSWER, agent, asked
from support.langchain_parts import ListRetriever, Says, call
from support.polling import eventually
from support.scripted_engine import ScriptedEngine

from ragguard import DistractorGuard, RagGuard, connect, world
from ragguard.errors import EngineUnreachable, InvalidInput
from ragguard_langchain import AdviceMiddleware, GuardMiddleware, RagGuardCallback

MODES = pytest.mark.parametrize("mode", ["invoke", "ainvoke", "stream", "astream"])
CASE = world.cases(4, hops=2)[3]
PLAN = (*CASE.sub_questions, CASE.question) * 2
PATIENT = 120_000
"""Milliseconds for advice, so that a busy machine changes nothing."""


@pytest.fixture(scope="module")
def nano():
    return connect("nano")


@pytest.fixture
def rg(nano):
    with RagGuard(nano, store=None, scorers=()) as rg:
        yield rg


def finds(query):
    """Gives the passage that answers a sub-question, and one that does not."""
    gold = dict(zip(CASE.sub_questions, CASE.gold, strict=True)).get(query)
    return [*([] if gold is None else [gold]), CASE.distractors[0]]


@tool(response_format="content_and_artifact")
def search(query: str) -> tuple[str, list[Document]]:
    """Searches nano's world."""
    found = [Document(one.text, id=one.id) for one in finds(query)]
    return "\n".join(one.page_content for one in found), found


class Searches(Says):
    """A model that calls the next of its turns as long as it is offered a tool, then answers.

    `heard` has what it was told each time: the names of the tools, and the system message.
    """

    heard: list[tuple[list[str], str]]

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools)

    def _generate(self, messages: Any, *args: Any, tools: Any = (), **kwargs: Any) -> Any:
        system = "\n".join(one.text for one in messages if isinstance(one, SystemMessage))
        self.heard.append(([one.name for one in tools], system))
        if not tools:
            self._next = len(self.turns) - 1
        return super()._generate(messages, *args, **kwargs)

    def _stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        yield from ()
        raise NotImplementedError


def searching(*queries, answer=ANSWER, name="search"):
    """A model that makes these searches one after the other; several in a tuple are made at once."""
    turns = [
        [call(name, query=one) for one in (query if isinstance(query, tuple) else (query,))]
        for query in queries
    ]
    return Searches(turns=[*turns, answer], heard=[], disable_streaming=True)


async def go(built, given, config, mode="invoke"):
    """Calls an agent, and returns its messages."""
    if mode == "invoke":
        done = built.invoke(given, config)
    elif mode == "ainvoke":
        done = await built.ainvoke(given, config)
    elif mode == "stream":
        *_, done = built.stream(given, config, stream_mode="values")
    else:
        done = [state async for state in built.astream(given, config, stream_mode="values")][-1]
    return done["messages"]


def searches(messages):
    return [one for one in messages if isinstance(one, ToolMessage)]


def watching(rg):
    return {"callbacks": [RagGuardCallback(rg)]}


@MODES
async def test_an_agent_answers_once_what_it_found_suffices(rg, mode):
    model = searching(*PLAN)
    built = create_agent(model, [search], middleware=[AdviceMiddleware(max_hops=6, budget_ms=PATIENT)])
    messages = await go(built, asked(CASE.question), watching(rg), mode)
    assert messages[-1].text == ANSWER
    assert len(searches(messages)) == 2
    rg.flush(timeout=60)
    (run,) = rg.runs()
    assert [step.advice.action for step in run.steps] == ["continue", "answer"]
    assert [tools for tools, _ in model.heard] == [["search"], ["search"], []]
    first, second, last = (system for _, system in model.heard)
    assert first == ""
    assert second.startswith("Not answered yet by what was retrieved:\n- ")
    assert "answers the question" in last


async def test_the_advice_and_what_it_asks_are_no_part_of_the_run(rg):
    built = create_agent(searching(*PLAN), [search], middleware=[AdviceMiddleware(budget_ms=PATIENT)])
    await go(built, asked(CASE.question), watching(rg), "ainvoke")
    rg.flush(timeout=60)
    (run,) = rg.runs()
    assert [(step.query, step.sub_steps) for step in run.steps] == [(one, []) for one in CASE.sub_questions]
    assert (run.question, run.answer) == (CASE.question, ANSWER)


async def test_an_engine_that_calls_langchain_itself_adds_nothing_to_the_run(nano):
    class Retrieving:
        """An engine of the user's own, in which a retriever of LangChain's is asked."""

        def __getattr__(self, name):
            return getattr(nano, name)

        async def label_probs(self, *args, **kwargs):
            ListRetriever().invoke("a question of the engine's own")
            return await nano.label_probs(*args, **kwargs)

    with RagGuard(Retrieving(), store=None, scorers=()) as rg:
        built = create_agent(searching(*PLAN), [search], middleware=[AdviceMiddleware(budget_ms=PATIENT)])
        await go(built, asked(CASE.question), watching(rg), "ainvoke")
        rg.flush(timeout=60)
        (run,) = rg.runs()
        assert [step.query for step in run.steps] == CASE.sub_questions


@MODES
async def test_never_more_hops_than_allowed(rg, mode):
    model = searching("a", ("b", "c"), "d", "e", "f")
    built = create_agent(model, [search], middleware=[AdviceMiddleware(max_hops=2, budget_ms=PATIENT)])
    messages = await go(built, asked(CASE.question), watching(rg), mode)
    assert [one.tool_call_id for one in searches(messages)] == [f"call-search-{one}" for one in "abc"]
    assert messages[-1].text == ANSWER
    assert "No further search" in model.heard[-1][1]


async def test_searches_side_by_side_are_one_hop_and_get_one_advice(rg):
    built = create_agent(
        searching((CASE.sub_questions[0], "x"), *PLAN[1:]),
        [search],
        middleware=[AdviceMiddleware(budget_ms=PATIENT)],
    )
    messages = await go(built, asked(CASE.question), watching(rg), "ainvoke")
    rg.flush(timeout=60)
    (run,) = rg.runs()
    assert [step.turn for step in run.steps] == [0, 0, 1]
    assert sum(step.advice is not None for step in run.steps if step.turn == 0) == 1
    assert len(searches(messages)) == 3


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_an_agent_that_nobody_captures_keeps_to_its_hops_and_says_so_once(mode, caplog):
    for _ in range(2):
        built = create_agent(searching(*PLAN), [search], middleware=[AdviceMiddleware(max_hops=3)])
        messages = await go(built, asked(CASE.question), {}, mode)
        assert (len(searches(messages)), messages[-1].text) == (3, ANSWER)
    assert caplog.text.count("outside of any captured run") == 1


@pytest.mark.parametrize("opened", [True, False])
async def test_a_run_that_is_not_sampled_keeps_to_its_hops_and_says_so_once(nano, caplog, opened):
    with RagGuard(nano, store=None, sample_rate=0.0) as rg:
        for _ in range(2):
            built = create_agent(searching(*PLAN), [search], middleware=[AdviceMiddleware(max_hops=3)])
            if opened:
                with rg.run(CASE.question):
                    messages = await go(built, asked(CASE.question), watching(rg))
            else:
                messages = await go(built, asked(CASE.question), watching(rg))
            assert (len(searches(messages)), messages[-1].text) == (3, ANSWER)
    assert caplog.text.count("was not sampled") == 1


async def test_tools_that_nobody_declared_as_retrievals_are_named_once(nano, caplog):
    @tool
    def search(query: str) -> str:
        """Searches, and gives a text."""
        return "Ada Berg founded it."

    with RagGuard(nano, store=None) as rg:
        built = create_agent(searching(*PLAN), [search], middleware=[AdviceMiddleware(max_hops=3)])
        messages = await go(built, asked(CASE.question), watching(rg))
        assert (len(searches(messages)), messages[-1].text) == (3, ANSWER)
    assert caplog.text.count("no step") == 1


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
@pytest.mark.parametrize("trouble", ["down", "slow", "spent"])
async def test_the_loop_goes_on_where_the_engine_does_not(trouble, mode, caplog):
    engine = ScriptedEngine(
        fault=(lambda call: EngineUnreachable("it is gone")) if trouble == "down" else (lambda call: None),
        gate=asyncio.Event() if trouble == "slow" else None,
    )
    budget = {"requests": 1} if trouble == "spent" else None
    with RagGuard(engine, store=None, scorers=(), budget=budget) as rg:
        middleware = AdviceMiddleware(max_hops=5, budget_ms=50 if trouble == "slow" else 5000)
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
        ({"max_hops": -1}, "max_hops"),
        ({"max_hops": True}, "max_hops"),
        ({"max_hops": "6"}, "max_hops"),
        ({"max_hops": None}, "max_hops"),
        ({"budget_ms": 0}, "budget_ms"),
        ({"budget_ms": float("nan")}, "budget_ms"),
        ({"budget_ms": "300"}, "budget_ms"),
        ({"search_tools": "search"}, "search_tools"),
        ({"search_tools": []}, "search_tools"),
        ({"search_tools": [search]}, "search_tools"),
    ],
)
def test_wrong_settings_are_refused_at_once(settings, argument):
    with pytest.raises(InvalidInput, match=f"^{argument}: got "):
        AdviceMiddleware(**settings)


async def test_two_agents_in_one_run_count_their_own_hops(rg):
    middleware = AdviceMiddleware(max_hops=2, budget_ms=PATIENT)
    with rg.run(CASE.question):
        for _ in range(2):
            built = create_agent(searching("a", "b", "c"), [search], middleware=[middleware])
            messages = await go(built, asked(CASE.question), watching(rg), "ainvoke")
            assert len(searches(messages)) == 2
    rg.flush(timeout=60)
    assert len(rg.runs()[0].steps) == 4


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_an_agent_that_was_interrupted_counts_on(rg, mode):
    @tool
    def ask_human(query: str) -> str:
        """Asks a person."""
        return str(interrupt(query))

    model = Searches(
        turns=[
            call("search", query="a"), call("ask_human", query="which?"), call("search", query="b"),
            call("search", query="c"), call("search", query="d"), ANSWER,
        ],
        heard=[], disable_streaming=True,
    )  # fmt: skip
    middleware = AdviceMiddleware(max_hops=2, search_tools=["search"])
    built = create_agent(model, [search, ask_human], middleware=[middleware], checkpointer=InMemorySaver())

    def on_thread():
        return {**watching(rg), "configurable": {"thread_id": "t"}}

    await go(built, asked(CASE.question), on_thread(), mode)
    messages = await go(built, Command(resume="this one"), on_thread(), mode)
    assert [one.tool_call_id for one in searches(messages)] == [
        "call-search-a", "call-ask_human-which?", "call-search-b",
    ]  # fmt: skip
    assert model.heard[-1][0] == ["ask_human"]
    model._next = 0
    messages = await go(built, asked("And who else?"), on_thread(), mode)
    assert len(searches(messages)) == 4  # a new question begins anew, up to where it asks the person


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
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
    assert caplog.text.count("although it was offered none") == 1


async def test_other_tools_stay(rg):
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


@pytest.mark.parametrize(
    "prompt", ["Be brief.", SystemMessage([{"type": "text", "text": "Be brief."}])], ids=["text", "blocks"]
)
async def test_the_system_message_stays_in_front_of_the_note(rg, prompt):
    model = searching("a", "b")
    built = create_agent(model, [search], system_prompt=prompt, middleware=[AdviceMiddleware(max_hops=1)])
    await go(built, asked(CASE.question), watching(rg))
    assert model.heard[0][1] == "Be brief."
    assert model.heard[1][1].startswith("Be brief.\n\nNo further search")


async def test_an_agent_without_tools_for_searching_still_gives_its_structured_answer(rg):
    class Found(BaseModel):
        person: str

    model = Says(turns=[call("search", query="a"), call("Found", person="Ada")])
    built = create_agent(
        model, [search], response_format=ToolStrategy(Found), middleware=[AdviceMiddleware(max_hops=1)]
    )
    assert built.invoke(asked(CASE.question), watching(rg))["structured_response"] == Found(person="Ada")


async def test_a_model_that_is_asked_again_after_an_error_gets_no_second_advice(rg):
    class Failing(Searches):
        failed: bool = False

        def _generate(self, messages, *args, **kwargs):
            if searches(messages) and not self.failed:
                self.failed = True
                raise ValueError("once")
            return super()._generate(messages, *args, **kwargs)

    turns = [*(call("search", query=one) for one in PLAN), ANSWER]
    model = Failing(turns=turns, heard=[], disable_streaming=True)
    retry = ModelRetryMiddleware(max_retries=1, initial_delay=0.0, jitter=False)
    built = create_agent(model, [search], middleware=[retry, AdviceMiddleware(budget_ms=PATIENT)])
    messages = await go(built, asked(CASE.question), watching(rg))
    assert len(searches(messages)) == 2


async def test_tools_that_the_agent_does_not_have_are_named_once(rg, caplog):
    for _ in range(2):
        middleware = AdviceMiddleware(max_hops=1, search_tools=["serach"])
        built = create_agent(searching("a", "b"), [search], middleware=[middleware])
        await go(built, asked(CASE.question), watching(rg))
    assert caplog.text.count("no tool of search_tools=['serach']") == 1
    assert "it is offered ['search']" in caplog.text


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
