"""Agents and workflows: hops as the agent wrote them, parallel calls as one turn, the answer it gave."""

import asyncio

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.objects import ObjectIndex
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.tools import QueryEngineTool, RetrieverTool
from llama_index.core.workflow import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from support.llamaindex_parts import QUESTION, ListRetriever, Says, call, scripted
from workflows.runtime.types import results


def search(name="search", retriever=None, **settings):
    return RetrieverTool.from_defaults(retriever or ListRetriever(name), name=name, **settings)


def ask(name="ask", retriever=None):
    query_engine = RetrieverQueryEngine.from_args(retriever or ListRetriever(name), llm=Says(text="Nordlys"))
    return QueryEngineTool.from_defaults(query_engine, name=name)


async def test_query_of_a_tool_is_what_the_agent_wrote(recorder, captured):
    """RetrieverTool asks its retriever for "query is …\\n"."""
    model = scripted(call("search", query="by another name"), call("ask", input="plainly"), "done")
    await FunctionAgent(tools=[search(), ask()], llm=model).run(user_msg=QUESTION)
    assert [step.query for step in captured.run.steps] == ["by another name", "plainly"]


async def test_a_react_agent(recorder, captured):
    thoughts = scripted(
        'Thought: look.\nAction: search\nAction Input: {"input": "firm based in Oslo"}',
        "Thought: I can answer.\nAnswer: Ada Berg",
    )
    await ReActAgent(tools=[search()], llm=thoughts).run(user_msg=QUESTION)
    run = captured.run
    assert (run.question, run.answer, run.name) == (QUESTION, "Ada Berg", "ReActAgent")
    assert [(one.query, one.tool) for one in run.steps] == [("firm based in Oslo", "search")]


async def test_steps_of_a_message_come_in_the_order_of_its_tool_calls(recorder, captured):
    gate = asyncio.Event()
    slow = search("slow", ListRetriever("slow", gate=gate))
    quick = search("quick", ListRetriever("quick", fault=lambda query: gate.set()))
    late = search("late", ListRetriever("late"))
    model = scripted([call("late", input="a"), call("slow", input="b"), call("quick", input="c")], "done")
    late_call = late.acall

    async def acall(*args, **kwargs):
        await gate.wait()
        return await late_call(*args, **kwargs)

    object.__setattr__(late, "acall", acall)
    await FunctionAgent(tools=[late, slow, quick], llm=model).run(user_msg=QUESTION)
    assert [(one.index, one.query, one.turn) for one in captured.run.steps] == [
        (0, "a", 0),
        (1, "b", 0),
        (2, "c", 0),
    ]


async def test_agents_that_hand_over_are_one_run(recorder, captured):
    first = FunctionAgent(
        name="first",
        description="finds firms",
        tools=[search("firms")],
        llm=scripted(
            call("firms", input="firm based in Oslo"), call("handoff", to_agent="second", reason="r")
        ),
    )
    second = FunctionAgent(
        name="second",
        description="finds founders",
        tools=[search("founders")],
        llm=scripted(call("founders", input="founder of Nordlys"), "Ada Berg"),
    )
    await AgentWorkflow(agents=[first, second], root_agent="first").run(user_msg=QUESTION)
    run = captured.run
    assert (run.question, run.answer, run.name) == (QUESTION, "Ada Berg", "AgentWorkflow")
    assert [(one.metadata["agent"], one.query, one.tool, one.turn) for one in run.steps] == [
        ("first", "firm based in Oslo", "firms", 0),
        ("second", "founder of Nordlys", "founders", 1),
    ]


async def test_the_choice_of_tools_is_no_hop(recorder, captured):
    found = ObjectIndex.from_objects(
        [search(), ask()], index_cls=VectorStoreIndex, embed_model=MockEmbedding(embed_dim=4)
    ).as_retriever(similarity_top_k=2)
    model = scripted(call("search", input="firm based in Oslo"), "Ada Berg")
    await FunctionAgent(tool_retriever=found, llm=model).run(user_msg=QUESTION)
    agent = FunctionAgent(name="one", description="d", tool_retriever=found, llm=scripted("nothing needed"))
    await AgentWorkflow(agents=[agent]).run(user_msg="and now?")
    assert [one.query for one in captured.run.steps] == ["firm based in Oslo"]


@pytest.mark.parametrize(
    "asked",
    [
        {"user_msg": ChatMessage(role="user", content=QUESTION)},
        {
            "chat_history": [
                ChatMessage(role="user", content="hello"),
                ChatMessage(role="assistant", content="hi"),
                ChatMessage(role="user", content=QUESTION),
            ]
        },
    ],
    ids=["message", "history"],
)
async def test_the_question_in_every_form_it_comes_in(recorder, captured, asked):
    await FunctionAgent(tools=[search()], llm=scripted(call("search", input="x"), "done")).run(**asked)
    assert captured.run.question == QUESTION


async def test_a_run_that_waits_for_a_human(recorder, captured):
    async def confirm(ctx: Context, topic: str) -> str:
        """Asks the human."""
        word = await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="sure?"))
        return str(len(await ListRetriever().aretrieve(f"{topic} {word.response}")))

    model = scripted(call("search", input="before"), call("confirm", topic="after"), "Ada Berg")
    handler = FunctionAgent(tools=[search(), confirm], llm=model).run(user_msg=QUESTION)
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            handler.ctx.send_event(HumanResponseEvent(response="yes"))
    await handler
    run = captured.run
    assert (run.status, run.answer) == ("ok", "Ada Berg")
    assert [one.query for one in run.steps] == ["before", "after yes"]


async def test_retrieval_of_a_tool_that_then_waits_for_a_human_was_not_read(recorder, captured):
    async def confirm(ctx: Context, topic: str) -> str:
        """Searches, and asks the human; it is called again with the reply."""
        found = await ListRetriever().aretrieve(topic)
        await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="sure?"))
        return found[0].node.text

    handler = FunctionAgent(tools=[confirm], llm=scripted(call("confirm", topic="firm"), "Ada Berg")).run(
        user_msg=QUESTION
    )
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            handler.ctx.send_event(HumanResponseEvent(response="yes"))
    await handler
    waited, read = captured.run.steps
    assert (waited.status, waited.passages, len(waited.candidates)) == ("error", [], 2)
    assert "the tool waited for an event" in waited.error
    assert (read.status, [one.text for one in read.passages]) == ("ok", ["shelf 0 about firm"])


async def test_tool_calls_outside_an_agent(recorder, captured):
    search().call("firm in Oslo")
    await ask().acall(input="who founded it?")
    first, second = captured.runs
    assert (first.question, first.answer, first.steps[0].tool) == ("firm in Oslo", None, "search")
    assert (second.question, second.answer, second.steps[0].query) == (
        "who founded it?",
        "Nordlys",
        "who founded it?",
    )


async def test_predict_and_call(recorder, captured):
    both = [call("search", input="one"), call("ask", input="two")]
    scripted(both).predict_and_call([search(), ask()], user_msg=QUESTION, allow_parallel_tool_calls=True)
    await scripted(both).apredict_and_call(
        [search(), ask()], user_msg=QUESTION, allow_parallel_tool_calls=True
    )
    for run in captured.runs:
        assert run.question == QUESTION
        assert "Nordlys" in run.answer
        assert {(one.turn, one.query) for one in run.steps} == {(0, "one"), (0, "two")}


class Flow(Workflow):
    """A pipeline of the user's own: two hops, a filter, an answer."""

    @step
    async def answer(self, ev: StartEvent) -> StopEvent:
        first = await ListRetriever("one").aretrieve(ev.question)
        second = SimilarityPostprocessor(similarity_cutoff=0.95).postprocess_nodes(
            await ListRetriever("two").aretrieve(first[0].node.text), query_str=ev.question
        )
        return StopEvent(result={"answer": "Ada Berg", "sources": second})


async def test_a_workflow_of_the_users_own(recorder, captured):
    await Flow().run(question=QUESTION)
    run = captured.run
    assert (run.question, run.answer, run.name) == (QUESTION, "Ada Berg", "Flow")
    assert [(one.query, one.turn, len(one.passages)) for one in run.steps] == [
        (QUESTION, 0, 2),
        (f"one 0 about {QUESTION}", 1, 2),
    ]
    assert [one.metadata["ragguard.delivered"] for one in run.steps] == ["unknown", "unknown"]


class Asked(StartEvent):
    topic: str
    limit: int = 3


class Found(StopEvent):
    answer: str


class TypedFlow(Workflow):
    """With events of the user's own, and hops in parallel."""

    @step
    async def answer(self, ev: Asked) -> Found:
        gate = asyncio.Event()
        hops = [
            asyncio.create_task(ListRetriever(name, gate=gate).aretrieve(ev.topic))
            for name in ("left", "right")
        ]
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*hops)
        return Found(answer="Ada Berg")


async def test_a_workflow_with_events_of_its_own(recorder, captured):
    await TypedFlow().run(topic=QUESTION)
    run = captured.run
    assert (run.question, run.answer) == (QUESTION, "Ada Berg")
    assert {one.turn for one in run.steps} == {0}


class Part(Event):
    query: str


class Fanned(Event):
    answer: str


class FanOut(Workflow):
    """A step sends several events at once, after a hop of its own; another step searches on each without waiting."""

    @step
    async def split(self, ctx: Context, ev: StartEvent) -> Part | None:
        ListRetriever("first").retrieve("first")
        for query in ("left", "right"):
            ctx.send_event(Part(query=query))

    @step(num_workers=2)
    async def search(self, ev: Part) -> Fanned:
        ListRetriever(ev.query).retrieve(ev.query)
        return Fanned(answer=ev.query)

    @step
    async def write(self, ctx: Context, ev: Fanned) -> StopEvent | None:
        if not ctx.collect_events(ev, [Fanned] * 2):
            return None
        ListRetriever("last").retrieve("last")
        return StopEvent(result="Ada Berg")


@pytest.mark.skipif(
    "sends" not in results.StepWorkerContext.__dataclass_fields__,
    reason="this LlamaIndex keeps no sent events",
)
async def test_steps_whose_events_one_step_has_sent_share_a_turn(recorder, captured):
    await FanOut().run(question=QUESTION)
    turns = {one.query: one.turn for one in captured.run.steps}
    assert turns == {"first": 0, "left": 1, "right": 1, "last": 2}
