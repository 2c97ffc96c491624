"""Agents: sequential and parallel tool calls, streams, crowds, cancellation."""

from __future__ import annotations

import asyncio

import pytest
from langchain_core.messages import AIMessage
from support.langchain_agents import QUESTION, SEQUENTIAL, agent, asked, hops, search_tool
from support.langchain_parts import ListRetriever, call


def only_step(captured):
    (step,) = captured.run.steps
    return step


async def test_the_user_gets_every_token_of_a_streaming_agent(captured, config):
    tokens = [
        message.content
        async for message, _ in agent(*SEQUENTIAL[:2], "Ada Berg of Oslo").astream(
            asked(), config, stream_mode="messages"
        )
        if isinstance(message, AIMessage) and message.content
    ]
    assert "".join(tokens) == "Ada Berg of Oslo"
    assert len(tokens) == 4
    assert captured.run.answer == "Ada Berg of Oslo"
    assert len(captured.run.steps) == 2


async def test_ten_concurrent_agents_never_mix(captured, config):
    async def ask(n):
        built = agent(
            call("search", query=f"hop a of {n};"), call("search", query=f"hop b of {n};"), f"answer {n};"
        )
        await built.ainvoke(asked(f"question {n};"), config)

    await asyncio.gather(*(ask(n) for n in range(10)))
    assert len(captured.runs) == 10
    for run in captured.runs:
        word = run.question.split(" ")[1]
        assert run.answer == f"answer {word}"
        assert hops(run) == [(f"hop a of {word}", 0, "ok"), (f"hop b of {word}", 1, "ok")]
        assert all(word in p.text for step in run.steps for p in step.passages)


async def test_a_cancelled_agent(captured, config):
    waiting = asyncio.Event()
    shelf = ListRetriever(gate=asyncio.Event(), waiting=waiting.set)
    task = asyncio.create_task(agent(*SEQUENTIAL, tools=[search_tool(shelf)]).ainvoke(asked(), config))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (captured.run.status, captured.run.question) == ("cancelled", QUESTION)
    assert only_step(captured).status == "cancelled"


async def test_an_agent_that_is_left_while_it_streams(captured, recorder, config):
    stream = agent(*SEQUENTIAL).astream(asked(), config)
    async for update in stream:
        if "tools" in update:
            break
    await stream.aclose()
    async with asyncio.timeout(10):
        while captured.run.status == "open":
            await asyncio.sleep(0)
    assert captured.run.status in ("cancelled", "ok")
    assert [step.query for step in captured.run.steps] == ["1 firm in Oslo"]
