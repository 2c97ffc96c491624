"""The guard in engines, chats and agents: what the model gets, and what the step says of it."""

from __future__ import annotations

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.postprocessor import MetadataReplacementPostProcessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import CitationQueryEngine, RetrieverQueryEngine, SubQuestionQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import QueryEngineTool, RetrieverTool
from support.guards import guarding, judging
from support.llamaindex_parts import (
    QUESTION,
    FixedRetriever,
    ListRetriever,
    OverridingRetriever,
    QuestionPerTool,
    Says,
    call,
    ids,
    nodes,
    scripted,
)
from support.scripted_engine import ScriptedEngine

from ragguard import DistractorGuard
from ragguard.capture.handle import RunHandle
from ragguard.guard import TopUtility
from ragguard_llamaindex import DistractorPostprocessor, GuardedRetriever

MODES = pytest.mark.parametrize("mode", ["sync", "async"])


def engine(retriever=None, guard=None, before=(), after=(), **settings):
    chain = [*before, DistractorPostprocessor(guard or guarding()), *after]
    return RetrieverQueryEngine.from_args(
        retriever or ListRetriever(count=4), llm=Says(), node_postprocessors=chain, **settings
    )


def search(guard=None, name="search"):
    return RetrieverTool.from_defaults(
        ListRetriever(name), name=name, node_postprocessors=[DistractorPostprocessor(guard or guarding())]
    )


def ask(guard=None, name="ask"):
    return QueryEngineTool.from_defaults(engine(ListRetriever(name), guard), name=name, description=name)


def told(step):
    """What a step says: retrieved, given to the model, and of what was dropped the rank and the id."""
    dropped = [(drop.position, drop.passage.id) for drop in step.decision.dropped]
    return ids(step.candidates), ids(step.passages), dropped


@MODES
async def test_the_postprocessor_gives_the_very_nodes_that_came_in_their_order(mode):
    given, guard = nodes("shelf", 4), DistractorPostprocessor(guarding())
    if mode == "sync":
        kept = guard.postprocess_nodes(given, query_str=QUESTION)
    else:
        kept = await guard.apostprocess_nodes(given, QueryBundle(QUESTION))
    assert [id(node) for node in kept] == [id(given[0]), id(given[2])]
    assert len(given) == 4


@MODES
async def test_a_guarded_query_is_one_step_with_its_decision(recorder, captured, mode):
    response = engine().query(QUESTION) if mode == "sync" else await engine().aquery(QUESTION)
    assert [node.node_id for node in response.source_nodes] == ["shelf-0", "shelf-2"]
    (step,) = captured.run.steps
    assert told(step) == (
        ["shelf-0", "shelf-1", "shelf-2", "shelf-3"],
        ["shelf-0", "shelf-2"],
        [(2, "shelf-1"), (4, "shelf-3")],
    )
    decision = step.decision
    assert decision.kept == step.passages
    assert (decision.status, decision.reason) == ("pruned", "UtilityThreshold")
    assert decision.elapsed_ms > 0
    assert step.started_ns <= decision.started_ns <= captured.run.ended_ns or not captured.run.ended_ns
    first = decision.dropped[0]
    assert first.passage == step.candidates[1]
    assert (first.utility, first.p_abstain, first.p_relevant) == pytest.approx((-0.72, 0.1, 0.1))
    assert "utility -0.72" in first.reason


@MODES
async def test_a_guarded_retriever_is_one_step_too(recorder, captured, mode):
    guarded = GuardedRetriever(ListRetriever(count=4), guarding())
    guarded.retrieve(QUESTION) if mode == "sync" else await guarded.aretrieve(QUESTION)
    (step,) = captured.run.steps
    assert told(step)[1:] == (["shelf-0", "shelf-2"], [(2, "shelf-1"), (4, "shelf-3")])
    assert len(step.candidates) == 4
    assert [(part.name, len(part.passages)) for part in step.sub_steps] == [("ListRetriever", 4)]


@MODES
@pytest.mark.parametrize("kind", [ContextChatEngine, CondensePlusContextChatEngine])
async def test_chat_engines(recorder, captured, kind, mode):
    chat = kind.from_defaults(
        retriever=ListRetriever(count=4), llm=Says(), memory=ChatMemoryBuffer.from_defaults(),
        node_postprocessors=[DistractorPostprocessor(guarding())],
    )  # fmt: skip
    chat.chat(QUESTION) if mode == "sync" else await chat.achat(QUESTION)
    (step,) = captured.run.steps
    assert told(step)[1:] == (["shelf-0", "shelf-2"], [(2, "shelf-1"), (4, "shelf-3")])


@MODES
async def test_a_chat_is_judged_by_its_condensed_question(recorder, captured, mode):
    model = ScriptedEngine(label=judging)
    chat = CondensePlusContextChatEngine.from_defaults(
        retriever=ListRetriever(), llm=Says(text="Who founded Nordlys?"), memory=ChatMemoryBuffer.from_defaults(),
        node_postprocessors=[DistractorPostprocessor(guarding(model))],
    )  # fmt: skip
    for message in ("hello", "and who founded it?"):
        chat.chat(message) if mode == "sync" else await chat.achat(message)
    assert [step.query for run in captured.runs for step in run.steps][-1] == "Who founded Nordlys?"
    assert all("Who founded Nordlys?" in text for text in model.calls[-1].texts)


async def test_a_streamed_chat(recorder, captured):
    chat = ContextChatEngine.from_defaults(
        retriever=ListRetriever(), llm=Says(), memory=ChatMemoryBuffer.from_defaults(),
        node_postprocessors=[DistractorPostprocessor(guarding())],
    )  # fmt: skip
    response = await chat.astream_chat(QUESTION)
    assert [token async for token in response.async_response_gen()] == ["Ada", " Berg"]
    assert told(captured.run.steps[0])[1:] == (["shelf-0"], [(2, "shelf-1")])


@pytest.mark.parametrize("use_async", [False, True])
async def test_sub_questions_have_a_decision_each(recorder, captured, use_async):
    asking = SubQuestionQueryEngine.from_defaults(
        [ask(name="left"), ask(name="right")],
        question_gen=QuestionPerTool(), llm=Says(), use_async=use_async, verbose=False,
    )  # fmt: skip
    await asking.aquery(QUESTION) if use_async else asking.query(QUESTION)
    steps = sorted(captured.run.steps, key=lambda step: step.query)
    assert [(step.query, *told(step)[1:]) for step in steps] == [
        ("part left", ["left-0"], [(2, "left-1")]),
        ("part right", ["right-0"], [(2, "right-1")]),
    ]


@pytest.mark.parametrize("tool", [search, ask])
async def test_hops_of_an_agent(recorder, captured, tool):
    name = tool.__name__
    model = scripted(call(name, query="firm in Oslo"), call(name, query="founder of Nordlys"), "Ada Berg")
    judge = ScriptedEngine(label=judging)
    await FunctionAgent(tools=[tool(guarding(judge))], llm=model).run(user_msg=QUESTION)
    assert [(step.query, *told(step)[1:]) for step in captured.run.steps] == [
        ("firm in Oslo", [f"{name}-0"], [(2, f"{name}-1")]),
        ("founder of Nordlys", [f"{name}-0"], [(2, f"{name}-1")]),
    ]
    # Judged by what the agent wrote, and not by what its tool made of that: so guard and scorer share a cache.
    first = captured.run.steps[0]
    plain = ScriptedEngine(label=judging)
    await guarding(plain).aprune("firm in Oslo", first.candidates)
    assert judge.calls[0].texts == plain.calls[0].texts


async def test_a_retriever_tool_without_capture_judges_by_the_agents_words():
    judge = ScriptedEngine(label=judging)
    output = await search(guarding(judge)).acall(query="firm in Oslo")
    assert [node.node_id for node in output.raw_output] == ["search-0"]
    plain = ScriptedEngine(label=judging)
    await guarding(plain).aprune(
        "firm in Oslo", [node.text for node in nodes("search", 2, "\nquery is firm in Oslo\n")]
    )
    assert judge.calls[0].texts == plain.calls[0].texts


class Backwards(BaseNodePostprocessor):
    """A reranker that turns everything round."""

    def _postprocess_nodes(self, nodes, query_bundle=None):
        return nodes[::-1]


@MODES
@pytest.mark.parametrize("reranker", ["before", "behind"])
async def test_ranks_of_dropped_passages_are_those_of_the_retrieval(recorder, captured, mode, reranker):
    reranked = engine(**{"before" if reranker == "before" else "after": [Backwards()]})
    reranked.query(QUESTION) if mode == "sync" else await reranked.aquery(QUESTION)
    candidates, kept, dropped = told(captured.run.steps[0])
    assert candidates == ["shelf-0", "shelf-1", "shelf-2", "shelf-3"]
    assert (kept, sorted(dropped)) == (["shelf-2", "shelf-0"], [(2, "shelf-1"), (4, "shelf-3")])


class Adds(BaseNodePostprocessor):
    """Brings in what was not retrieved, as neighbours of what was."""

    def _postprocess_nodes(self, found, query_bundle=None):
        return [*found, *nodes("w", 2)]


def test_dropped_node_that_came_after_the_retrieval_has_no_rank(recorder, captured):
    engine(ListRetriever(), before=[Adds()]).query(QUESTION)
    (step,) = captured.run.steps
    assert told(step) == (["shelf-0", "shelf-1"], ["shelf-0"], [(2, "shelf-1"), (0, "w-1")])


@pytest.mark.parametrize("first", ["a postprocessor", "a retriever"])
def test_two_guards_are_one_decision(recorder, captured, first):
    second = guarding(policies=[TopUtility(1)])
    if first == "a postprocessor":
        engine(after=[DistractorPostprocessor(second)]).query(QUESTION)
    else:
        engine(GuardedRetriever(ListRetriever(count=4), guarding()), second).query(QUESTION)
    (step,) = captured.run.steps
    assert told(step) == (
        ["shelf-0", "shelf-1", "shelf-2", "shelf-3"],
        ["shelf-0"],
        [(2, "shelf-1"), (3, "shelf-2"), (4, "shelf-3")],
    )
    assert "TopUtility" in step.decision.reason


def test_a_text_that_was_replaced_before_it_was_judged(recorder, captured):
    engine(before=[MetadataReplacementPostProcessor(target_metadata_key="source")]).query(QUESTION)
    assert captured.run.steps[0].decision.status == "kept_all"
    windows = [
        NodeWithScore(
            node=TextNode(
                id_=f"n{n}",
                text="x",
                metadata={"window": f"w {n} about it"},
                excluded_llm_metadata_keys=["window"],
            )
        )
        for n in range(2)
    ]
    engine(
        FixedRetriever(windows), before=[MetadataReplacementPostProcessor(target_metadata_key="window")]
    ).query(QUESTION)
    (step,) = captured.runs[1].steps
    assert told(step) == (["n0", "n1"], ["n0"], [(2, "n1")])
    assert [passage.text for passage in step.passages] == ["w 0 about it"]


def test_pieces_that_were_made_after_the_guard(recorder, captured):
    CitationQueryEngine.from_args(
        None, llm=Says(), retriever=ListRetriever(), node_postprocessors=[DistractorPostprocessor(guarding())]
    ).query(QUESTION)
    (step,) = captured.run.steps
    assert (ids(step.candidates), len(step.passages)) == (["shelf-0", "shelf-1"], 1)
    assert [drop.position for drop in step.decision.dropped] == [2]


def test_nodes_of_one_id_are_told_apart_by_their_place(recorder, captured):
    twins = [
        NodeWithScore(node=TextNode(id_="7", text=text), score=0.5)
        for text in ("w 0 about it", "w 1 about it", "w 0 about it", "w 1 about it")
    ]
    with RunHandle(recorder, QUESTION):
        kept = DistractorPostprocessor(guarding()).postprocess_nodes(
            OverridingRetriever(twins).retrieve(QUESTION), query_str=QUESTION
        )
    assert [id(node) for node in kept] == [id(twins[0]), id(twins[2])]
    (step,) = captured.run.steps
    assert [drop.position for drop in step.decision.dropped] == [2, 4]
    assert len(step.passages) == 2


@MODES
async def test_guarded_arms_of_a_fusion_are_one_decision(recorder, captured, mode):
    arms = [GuardedRetriever(ListRetriever(name), guarding()) for name in ("left", "right")]
    fusion = QueryFusionRetriever(arms, llm=Says(), num_queries=1, use_async=False, similarity_top_k=9)
    fusion.retrieve(QUESTION) if mode == "sync" else await fusion.aretrieve(QUESTION)
    (step,) = captured.run.steps
    candidates, passages, dropped = told(step)
    assert sorted(passages) == ["left-0", "right-0"]
    assert candidates[:2] == passages
    assert sorted(candidates[2:]) == ["left-1", "right-1"]  # on an event loop the arms end in any order
    assert dropped == [(3, candidates[2]), (4, candidates[3])]


def test_node_dropped_in_one_arm_and_found_in_another_is_not_dropped(recorder, captured):
    arms = [GuardedRetriever(ListRetriever(), guarding()), ListRetriever()]
    QueryFusionRetriever(arms, llm=Says(), num_queries=1, use_async=False, similarity_top_k=9).retrieve(
        QUESTION
    )
    (step,) = captured.run.steps
    assert told(step) == (ids(step.passages), ids(step.passages), [])


def test_a_pipeline_written_by_hand(recorder, captured):
    guard = DistractorPostprocessor(guarding())
    with RunHandle(recorder, QUESTION) as run:
        for query in ("firm in Oslo", "its founder"):
            guard.postprocess_nodes(ListRetriever(query[:3]).retrieve(query), query_str=query)
        assert [(step.query, step.decision is not None) for step in run.steps] == [
            ("firm in Oslo", True), ("its founder", True),
        ]  # fmt: skip
    assert [told(step)[1:] for step in captured.run.steps] == [
        (["fir-0"], [(2, "fir-1")]), (["its-0"], [(2, "its-1")]),
    ]  # fmt: skip


def test_one_guard_for_two_retrievals(recorder, captured):
    with RunHandle(recorder, QUESTION):
        both = ListRetriever("left").retrieve("left") + ListRetriever("right").retrieve("right")
        DistractorPostprocessor(guarding()).postprocess_nodes(both, query_str=QUESTION)
    assert [told(step)[1:] for step in captured.run.steps] == [
        (["left-0"], [(2, "left-1")]), (["right-0"], [(2, "right-1")]),
    ]  # fmt: skip
    assert [ids(step.decision.kept) for step in captured.run.steps] == [["left-0"], ["right-0"]]


class Own(BaseRetriever):
    """A retriever of the user's that guards what it finds itself."""

    def __init__(self, guard: DistractorGuard) -> None:
        super().__init__()
        self.guard = DistractorPostprocessor(guard)

    def _retrieve(self, query_bundle):
        return self.guard.postprocess_nodes(nodes("own", 2), query_bundle)


def test_a_retriever_that_guards_itself(recorder, captured):
    Own(guarding()).retrieve(QUESTION)
    (step,) = captured.run.steps
    assert told(step) == (["own-0", "own-1"], ["own-0"], [(2, "own-1")])


class Wrapped(BaseNodePostprocessor):
    """A postprocessor of the user's around the guard."""

    inner: DistractorPostprocessor

    def _postprocess_nodes(self, nodes, query_bundle=None):
        return self.inner.postprocess_nodes(nodes, query_bundle)


def test_a_postprocessor_around_the_guard(recorder, captured):
    wrapped = Wrapped(inner=DistractorPostprocessor(guarding()))
    RetrieverQueryEngine.from_args(ListRetriever(), llm=Says(), node_postprocessors=[wrapped]).query(QUESTION)
    (step,) = captured.run.steps
    assert told(step)[1:] == (["shelf-0"], [(2, "shelf-1")])
