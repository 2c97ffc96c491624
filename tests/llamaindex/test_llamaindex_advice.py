"""Agents and workflows of LlamaIndex that stop when they are advised to, with nano's own advice."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import FunctionTool, RetrieverTool
from llama_index.core.workflow import (
    Context,
)
from support.advised import ANSWER, CASE, PATIENT, PLAN, TROUBLES, check_stopped, finds, troubled
from support.llamaindex_parts import ListRetriever, ToolCallingModel, call

from ragguard import RagGuard
from ragguard_llamaindex import AdvisedFunctionAgent, instrument, uninstrument


@pytest.fixture
def rg(nano):
    with RagGuard(nano, store=None, scorers=()) as rg:
        instrument(rg)
        yield rg
        uninstrument()


class World(ListRetriever):
    """Searches nano's world."""

    def _retrieve(self, query_bundle):
        return [
            NodeWithScore(node=TextNode(id_=one.id, text=one.text)) for one in finds(query_bundle.query_str)
        ]


def search_tool():
    return RetrieverTool.from_defaults(World(), name="search", description="Searches.")


class Searching:
    """A model that makes the next of its searches as long as it is offered a tool, then answers; `heard` has the names
    of the tools and the system message of each time."""

    def __init__(self, *turns, answer=ANSWER):
        self.turns, self.answer, self.next = turns, answer, 0
        self.heard: list[tuple[list[str], str]] = []
        self.llm = ToolCallingModel(self.say)

    def say(self, messages: Any, tools: Any = (), **kwargs: Any) -> ChatMessage:
        system = "\n".join(one.content or "" for one in messages if one.role == MessageRole.SYSTEM)
        self.heard.append(([tool.metadata.name for tool in tools], system))
        turn = self.turns[self.next] if self.next < len(self.turns) else ()
        queries = turn if isinstance(turn, tuple) else (turn,)
        calls = [call("search", query=one) if isinstance(one, str) else one for one in queries]
        if not calls or any(one.tool_name not in self.heard[-1][0] for one in calls):
            return ChatMessage(role="assistant", blocks=[TextBlock(text=self.answer)])
        self.next += 1
        return ChatMessage(role="assistant", blocks=calls)


def agent(model, **settings):
    return AdvisedFunctionAgent(
        **{"tools": [search_tool()], "llm": model.llm, "budget_ms": PATIENT, **settings}
    )


def queries(rg):
    rg.flush(timeout=60)
    return [[one.query for one in run.steps] for run in rg.runs()]


@pytest.mark.parametrize("streaming", [True, False])
async def test_an_agent_answers_once_what_it_found_suffices(rg, streaming):
    model = Searching(*PLAN)
    done = await agent(model, streaming=streaming).run(user_msg=CASE.question)
    assert str(done) == ANSWER
    assert queries(rg) == [CASE.sub_questions]
    (run,) = rg.runs()
    check_stopped(run, model.heard)


async def test_never_more_hops_than_allowed_and_searches_side_by_side_are_one(rg):
    model = Searching("a", ("b", "c"), "d", "e")
    done = await agent(model, max_hops=2, system_prompt="Be brief.").run(user_msg=CASE.question)
    assert str(done) == ANSWER
    assert sorted(queries(rg)[0]) == ["a", "b", "c"]
    assert model.heard[0][1] == "Be brief."
    assert model.heard[-1][1].startswith("Be brief.\nNo further search")
    (run,) = rg.runs()
    assert sum(one.advice is not None for one in run.steps) <= 1


@pytest.mark.filterwarnings("ignore::workflows.context.state_store.UnserializableKeyWarning")
async def test_each_question_of_a_conversation_counts_anew(rg):
    built = agent(Searching("a", "b", "c"), max_hops=1)
    ctx = Context(built)
    for _ in range(2):
        assert str(await built.run(user_msg=CASE.question, ctx=ctx)) == ANSWER
    assert queries(rg) == [["a"], ["b"]]


@pytest.mark.parametrize("captured", [False, True])
async def test_an_agent_without_a_sampled_run_keeps_to_its_hops_and_says_so_once(nano, caplog, captured):
    with RagGuard(nano, store=None, sample_rate=0.0) as rg:
        if captured:
            instrument(rg)
        for _ in range(2):
            model = Searching(*PLAN)
            assert str(await agent(model, max_hops=3).run(user_msg=CASE.question)) == ANSWER
            assert model.next == 3
        uninstrument()
    assert caplog.text.count("was not sampled" if captured else "outside of a captured run") == 1


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_the_loop_goes_on_where_the_engine_does_not(trouble, caplog):
    with troubled(trouble) as (rg, budget_ms):
        instrument(rg)
        built = agent(Searching("a", "b", "c"), budget_ms=budget_ms)
        assert str(await built.run(user_msg=CASE.question)) == ANSWER
        assert queries(rg) == [["a", "b", "c"]]
        assert caplog.text.count("goes on searching") == 1
        uninstrument()


async def test_a_model_that_searches_without_a_tool_is_stopped_all_the_same(rg, caplog):
    model = Searching()
    model.say = lambda messages, **kwargs: ChatMessage(
        role="assistant", blocks=[TextBlock(text="Maybe."), call("search", query="x")]
    )
    built = agent(model, llm=ToolCallingModel(model.say), max_hops=1)
    ctx = Context(built)
    done = await built.run(user_msg=CASE.question, ctx=ctx)
    assert str(done) == "Maybe."
    assert queries(rg) == [["x"]]
    memory = await ctx.store.get("memory")
    assert [len(one.blocks) for one in await memory.aget()][-1] == 1
    assert caplog.text.count("in which it could only answer") == 1


async def test_tools_that_do_not_search_stay_as_they_are(rg):
    book = FunctionTool.from_defaults(lambda query: "booked", name="book", description="Books.")
    model = Searching("a", (call("book", query="b"),), "c")
    built = agent(model, tools=[search_tool(), book], max_hops=1, search_tools=["search"])
    await built.run(user_msg=CASE.question)
    assert [tools for tools, _ in model.heard][:3] == [["search", "book"], ["book"], ["book"]]


async def test_agents_of_one_workflow_count_their_own_hops(rg):
    finder, writer = Searching("a", "b", "c"), Searching("d", "e", "f")
    finder.turns = ("a", (call("handoff", to_agent="writer", reason="found"),))
    agents = [
        agent(finder, name="finder", description="Finds.", can_handoff_to=["writer"], max_hops=1),
        agent(writer, name="writer", description="Writes.", max_hops=1),
    ]
    done = await AgentWorkflow(agents=agents, root_agent="finder").run(user_msg=CASE.question)
    assert str(done) == ANSWER
    assert [tools for tools, _ in finder.heard] == [["search", "handoff"], ["handoff"]]
    assert queries(rg) == [["a", "d"]]
