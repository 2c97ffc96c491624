"""The guard in engines, chats and agents: what the model gets, and what the step says of it."""

from __future__ import annotations

import pytest
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine, SubQuestionQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import QueryBundle
from llama_index.core.tools import QueryEngineTool, RetrieverTool
from support.guards import guarding, judging
from support.llamaindex_parts import (
    QUESTION,
    ListRetriever,
    QuestionPerTool,
    Says,
    ids,
    nodes,
)
from support.scripted_engine import ScriptedEngine

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


async def test_a_retriever_tool_without_capture_judges_by_the_agents_words():
    judge = ScriptedEngine(label=judging)
    output = await search(guarding(judge)).acall(query="firm in Oslo")
    assert [node.node_id for node in output.raw_output] == ["search-0"]
    plain = ScriptedEngine(label=judging)
    await guarding(plain).aprune(
        "firm in Oslo", [node.text for node in nodes("search", 2, "\nquery is firm in Oslo\n")]
    )
    assert judge.calls[0].texts == plain.calls[0].texts


class Adds(BaseNodePostprocessor):
    """Brings in what was not retrieved, as neighbours of what was."""

    def _postprocess_nodes(self, found, query_bundle=None):
        return [*found, *nodes("w", 2)]


def test_dropped_node_that_came_after_the_retrieval_has_no_rank(recorder, captured):
    engine(ListRetriever(), before=[Adds()]).query(QUESTION)
    (step,) = captured.run.steps
    assert told(step) == (["shelf-0", "shelf-1"], ["shelf-0"], [(2, "shelf-1"), (0, "w-1")])


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
