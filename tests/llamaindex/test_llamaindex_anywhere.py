"""Plain code inside workflows, tools and engines finds the run it is in; workflows go on in another process."""

from __future__ import annotations

import asyncio

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, Event, StartEvent, StopEvent, Workflow, step
from llama_index_instrumentation.dispatcher import instrument_tags
from support.captured import CapturedInStore
from support.llamaindex_parts import QUESTION, ListRetriever, call, nodes, scripted

import ragguard

pytestmark = pytest.mark.usefixtures("recorder")


@ragguard.retrieval
def search(query: str):
    return nodes("shelf", 2, query)


class Found(Event):
    count: int


class Flow(Workflow):
    @step
    async def retrieve(self, ctx: Context, ev: StartEvent) -> Found:
        found = search(ev.question)
        await asyncio.to_thread(search, "in a thread")
        return Found(count=len(found))

    @step
    async def answer(self, ev: Found) -> StopEvent:
        ragguard.retrieved("hop", nodes("other", 1))
        return StopEvent(result="Ada Berg")


async def test_in_the_steps_of_a_workflow(captured):
    await Flow().run(question=QUESTION)
    run = captured.run
    assert (run.question, run.answer, run.status) == (QUESTION, "Ada Berg", "ok")
    assert [(s.query, [(p.id, p.score) for p in s.passages]) for s in run.steps] == [
        (QUESTION, [("shelf-0", 1.0), ("shelf-1", 0.9)]),
        ("in a thread", [("shelf-0", 1.0), ("shelf-1", 0.9)]),
        ("hop", [("other-0", 1.0)]),
    ]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_in_a_tool_of_an_agent(captured, kind):
    def lookup(query: str):
        return search(query)

    async def alookup(query: str):
        return search(query)

    tool = (
        FunctionTool.from_defaults(name="lookup", description="Looks up.", fn=lookup)
        if kind == "sync"
        else (FunctionTool.from_defaults(name="lookup", description="Looks up.", async_fn=alookup))
    )
    agent = FunctionAgent(tools=[tool], llm=scripted(call("lookup", query="hop"), "Ada Berg"))
    await agent.run(user_msg=QUESTION)
    (found,) = captured.run.steps
    assert (found.query, found.tool, len(found.passages)) == ("hop", "lookup", 2)


def test_in_a_retriever_of_ones_own_it_is_a_part(captured):
    class Own(ListRetriever):
        def _retrieve(self, query_bundle):
            return search(f"{query_bundle.query_str}!")

    Own().retrieve("hop")
    (found,) = captured.run.steps
    assert (found.query, [part.query for part in found.sub_steps]) == ("hop", ["hop!"])


@pytest.fixture
def captured():
    return CapturedInStore()


@pytest.mark.usefixtures("recorder")
def test_run_goes_on_where_tags_name_it(captured):
    for query in ("one", "two"):
        with instrument_tags({"ragguard_resume": "x"}):
            ListRetriever().retrieve(query)
    (run,) = captured.runs
    assert (run.metadata["ragguard.caller_id"], run.question) == ("x", "one")
    assert [(s.index, s.query) for s in run.steps] == [(0, "one"), (1, "two")]
    assert not {key for key in run.metadata if key.startswith("ragguard_")}
