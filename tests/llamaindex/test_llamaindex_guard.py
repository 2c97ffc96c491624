"""The guard in engines, chats and agents: what the model gets, what the step says of it, and that it fails open."""

from __future__ import annotations

import copy
import pickle

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import ImageNode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import RetrieverTool
from pydantic import ValidationError
from support.guards import guarded_ids, guarding, judging
from support.llamaindex_parts import QUESTION, ListRetriever, Says, call, nodes, scripted
from support.scripted_engine import ScriptedEngine

from ragguard_llamaindex import AdvisedFunctionAgent, DistractorPostprocessor, GuardedRetriever

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
    assert guarded_ids(step)[1:] == (["shelf-0", "shelf-2"], [(2, "shelf-1"), (4, "shelf-3")])
    assert len(step.candidates) == 4
    assert [(part.name, len(part.passages)) for part in step.sub_steps] == [("ListRetriever", 4)]


async def test_a_retriever_tool_without_capture_judges_by_the_agents_words():
    judge = ScriptedEngine(label=judging)
    output = await search(guarding(judge)).acall(query="firm in Oslo")
    assert [node.node_id for node in output.raw_output] == ["search-0"]
    plain = ScriptedEngine(label=judging)
    await guarding(plain).aprune(
        "firm in Oslo", [node.text for node in nodes("search", 2, "\nquery is firm in Oslo\n")]
    )
    assert judge.calls[0].texts == plain.calls[0].texts


async def test_decision_of_one_of_two_parallel_tools_that_find_the_same_is_that_of_its_own_step(
    recorder, captured
):
    tools = [
        RetrieverTool.from_defaults(
            ListRetriever(), name="guarded", node_postprocessors=[DistractorPostprocessor(guarding())]
        ),
        RetrieverTool.from_defaults(ListRetriever(), name="plain"),
    ]
    llm = scripted([call("guarded", query="x"), call("plain", query="x")], "done")
    await FunctionAgent(tools=tools, llm=llm, streaming=False).run(user_msg=QUESTION)
    decided = {step.tool: step.decision is not None for step in captured.run.steps}
    assert decided == {"guarded": True, "plain": False}


class Adds(BaseNodePostprocessor):
    """Brings in what was not retrieved, as neighbours of what was."""

    def _postprocess_nodes(self, found, query_bundle=None):
        return [*found, *nodes("w", 2)]


def test_dropped_node_that_came_after_the_retrieval_has_no_rank(recorder, captured):
    engine(ListRetriever(), before=[Adds()]).query(QUESTION)
    (step,) = captured.run.steps
    assert guarded_ids(step) == (["shelf-0", "shelf-1"], ["shelf-0", "w-0"], [(2, "shelf-1"), (0, "w-1")])


@MODES
async def test_guarded_arms_of_a_fusion_are_one_decision(recorder, captured, mode):
    arms = [GuardedRetriever(ListRetriever(name), guarding()) for name in ("left", "right")]
    fusion = QueryFusionRetriever(arms, llm=Says(), num_queries=1, use_async=False, similarity_top_k=9)
    fusion.retrieve(QUESTION) if mode == "sync" else await fusion.aretrieve(QUESTION)
    (step,) = captured.run.steps
    candidates, passages, dropped = guarded_ids(step)
    assert sorted(passages) == ["left-0", "right-0"]
    assert candidates[:2] == passages
    assert sorted(candidates[2:]) == ["left-1", "right-1"]  # on an event loop the arms end in any order
    assert dropped == [(3, candidates[2]), (4, candidates[3])]


def guarded_engine(guard, retriever=None):
    return RetrieverQueryEngine.from_args(
        retriever or ListRetriever(), llm=Says(), node_postprocessors=[DistractorPostprocessor(guard)]
    )


def test_node_without_text_is_kept_and_ranks_stay_right(recorder, captured):
    mixed = [
        NodeWithScore(node=ImageNode(id_="image", image_url="http://127.0.0.1/x.png")),
        *nodes("w", 2),
        NodeWithScore(node=TextNode(id_="blank", text="  ")),
        *nodes("v", 2),
    ]
    model = ScriptedEngine(label=judging)

    class Mixed(ListRetriever):
        def _retrieve(self, query_bundle):
            return mixed

    response = guarded_engine(guarding(model), Mixed()).query(QUESTION)
    assert [node.node_id for node in response.source_nodes] == ["image", "w-0", "blank", "v-0"]
    assert len(model.calls[0].prompts) == 8
    (step,) = captured.run.steps
    assert [(drop.position, drop.passage.id) for drop in step.decision.dropped] == [(3, "w-1"), (6, "v-1")]
    assert [passage.id for passage in step.decision.kept] == ["image", "w-0", "blank", "v-0"]


def test_strange_nodes_pass_through():
    given = ["a text", TextNode(text="w 1 about it"), None, NodeWithScore(node=TextNode(text="w 0 about it"))]
    kept = DistractorPostprocessor(guarding()).postprocess_nodes(given, query_str="who?")
    assert [id(node) for node in kept] == [id(given[0]), id(given[2]), id(given[3])]


@MODES
async def test_a_deep_copy_of_a_guarded_retriever_guards(mode):
    """Frameworks copy what they are configured with."""
    mine = guarding()
    guarded = copy.deepcopy(GuardedRetriever(ListRetriever(count=4), mine))
    found = guarded.retrieve(QUESTION) if mode == "sync" else await guarded.aretrieve(QUESTION)
    assert [node.node_id for node in found] == ["shelf-0", "shelf-2"]
    assert guarded.guard is mine
    assert copy.deepcopy(DistractorPostprocessor(mine)).guard is mine
    with pytest.raises(TypeError, match="make one in each process"):
        pickle.dumps(DistractorPostprocessor(mine))


def test_unknown_setting_is_refused_by_name():
    with pytest.raises(ValidationError, match=r"AdvisedFunctionAgent\nmax_hop"):
        AdvisedFunctionAgent(tools=[], llm=scripted("done"), max_hop=3)
    with pytest.raises(ValidationError, match=r"DistractorPostprocessor\nthreshold"):
        DistractorPostprocessor(guarding(), threshold=0.1)
