"""Turns follow what waits for what: the events of a workflow, the calls of an agent's model."""

from __future__ import annotations

import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, Event, StartEvent, StopEvent, Workflow, step
from support.llamaindex_parts import QUESTION, ListRetriever, call, names_parallel_steps, scripted

from ragguard.capture.handle import RunHandle


class Search(Event):
    query: str
    deep: bool = False


class Found(Event):
    query: str


class FanOut(Workflow):
    """Sends four searches to two workers; one of them searches twice; then one more search on what came of it."""

    @step
    async def plan(self, ctx: Context, ev: StartEvent) -> Search | None:
        await ListRetriever("plan").aretrieve("the plan")
        for number in range(4):
            ctx.send_event(Search(query=f"part {number}", deep=number == 0))
        return None

    @step(num_workers=2)
    async def search(self, ev: Search) -> Found:
        await ListRetriever("search").aretrieve(ev.query)
        if ev.deep:
            for _ in range(20):
                await asyncio.sleep(0)
            await ListRetriever("search").aretrieve(f"{ev.query} again")
        return Found(query=ev.query)

    @step
    async def collect(self, ctx: Context, ev: Found) -> StopEvent | None:
        if ctx.collect_events(ev, [Found] * 4) is None:
            return None
        await ListRetriever("last").aretrieve("all of it")
        return StopEvent(result="Ada Berg")


@names_parallel_steps
async def test_a_fan_out_of_a_workflow_is_one_turn_however_many_workers_it_has(recorder, captured):
    await FanOut().run(question=QUESTION)
    assert {one.query: one.turn for one in captured.run.steps} == {
        "the plan": 0,
        **{f"part {number}": 1 for number in range(4)},
        "part 0 again": 2,
        "all of it": 3,
    }
    assert {one.metadata["workflow_step"] for one in captured.run.steps} == {"plan", "search", "collect"}


@names_parallel_steps
async def test_two_runs_of_a_workflow_in_one_run_do_not_mix(recorder, captured):
    with RunHandle(recorder, QUESTION):
        await FanOut().run(question=QUESTION)
        await FanOut().run(question=QUESTION)
    turns = [one.turn for one in captured.run.steps if one.query == "all of it"]
    assert turns == [3, 7]


@names_parallel_steps
async def test_the_order_within_a_turn_is_that_of_the_calls(recorder, captured):
    """Whichever tool comes to its retrieval first."""

    async def lookup(query: str, wait: int) -> str:
        """Thinks for a while, then retrieves."""
        for _ in range(wait):
            await asyncio.sleep(0)
        return str(await ListRetriever().aretrieve(query))

    calls = [call("lookup", query=f"{wait}", wait=wait) for wait in (60, 0, 30)]
    agent = FunctionAgent(
        tools=[FunctionTool.from_defaults(async_fn=lookup)],
        llm=scripted(calls, call("lookup", query="after", wait=0), "Ada Berg"),
    )
    await agent.run(user_msg=QUESTION)
    steps = sorted(captured.run.steps, key=lambda one: one.index)
    assert [(one.turn, one.query) for one in steps] == [(0, "60"), (0, "0"), (0, "30"), (1, "after")]
