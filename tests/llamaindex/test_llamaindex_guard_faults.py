"""The guard fails open in LlamaIndex too: late, dead, cancelled, on a running loop, fed with strange things."""

from __future__ import annotations

import asyncio
import copy
import pickle

import pytest
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import ImageNode, NodeWithScore, QueryBundle, TextNode
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.event_handlers import BaseEventHandler
from pydantic import Field
from support.guards import guarding, judging
from support.llamaindex_parts import QUESTION, ListRetriever, Says, nodes
from support.scripted_engine import ScriptedEngine

from ragguard import DistractorGuard, connect
from ragguard_llamaindex import DistractorPostprocessor, GuardedRetriever
from ragguard_llamaindex.instrumentation import SpanHandler

MODES = pytest.mark.parametrize("mode", ["sync", "async"])


def engine(guard, retriever=None):
    return RetrieverQueryEngine.from_args(
        retriever or ListRetriever(), llm=Says(), node_postprocessors=[DistractorPostprocessor(guard)]
    )


def open_calls():
    (handler,) = (one for one in get_dispatcher("root").span_handlers if isinstance(one, SpanHandler))
    return len(handler.spans)


class Watches(BaseEventHandler):
    """An event handler of the application's."""

    seen: list[str] = Field(default_factory=list)

    def handle(self, event, **kwargs):
        event.model_dump_json()
        self.seen.append(type(event).__module__)


@MODES
async def test_event_handlers_of_the_application_see_events_of_llamaindex_alone(recorder, mode):
    dispatcher, watches = get_dispatcher("root"), Watches()
    dispatcher.add_event_handler(watches)
    try:
        asking = engine(guarding())
        asking.query(QUESTION) if mode == "sync" else await asking.aquery(QUESTION)
    finally:
        dispatcher.event_handlers = [one for one in dispatcher.event_handlers if one is not watches]
    assert {name.partition(".")[0] for name in watches.seen} == {"llama_index"}


@pytest.mark.parametrize(
    ("how", "status", "parts"), [("postprocessor", "ok", []), ("retriever", "cancelled", ["ok"])]
)
async def test_a_query_that_is_cancelled_in_its_guard_is_cancelled(recorder, captured, how, status, parts):
    model = ScriptedEngine(label=judging, gate=asyncio.Event())
    guarded = GuardedRetriever(ListRetriever(), guarding(model))
    asked = guarded.aretrieve(QUESTION) if how == "retriever" else engine(guarding(model)).aquery(QUESTION)
    task = asyncio.create_task(asked)
    await model.until_running(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await model.until_running(0)
    (step,) = captured.run.steps
    assert (captured.run.status, step.status, step.decision) == ("cancelled", status, None)
    assert ([part.status for part in step.sub_steps], open_calls()) == (parts, 0)


async def test_the_sync_hook_on_a_running_loop_waits_and_does_not_hang(recorder, captured):
    """An engine that this very loop has used, and a loop that stands still until the guard is done."""
    nano = connect("nano")
    await nano.label_probs(["Oslo"], ["A"])
    guard = DistractorPostprocessor(DistractorGuard(nano, threshold=-1, budget_ms=20_000))
    async with asyncio.timeout(30):
        kept = guard.postprocess_nodes(nodes("shelf", 4), query_str=QUESTION)
        again = await guard.apostprocess_nodes(nodes("shelf", 4), query_str=QUESTION)
    assert len(kept) == len(again) == 4


@MODES
@pytest.mark.parametrize("asked", [None, QueryBundle(""), QueryBundle(" \n")], ids=["none", "empty", "blank"])
async def test_without_a_query_nothing_is_judged(mode, asked):
    model = ScriptedEngine(label=judging)
    guard, given = DistractorPostprocessor(guarding(model)), nodes("shelf", 4)
    kept = (
        guard.postprocess_nodes(given, asked)
        if mode == "sync"
        else await guard.apostprocess_nodes(given, asked)
    )
    assert (kept, model.calls) == (given, [])


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

    response = engine(guarding(model), Mixed()).query(QUESTION)
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
    with pytest.raises(TypeError, match="Make one in each process"):
        pickle.dumps(DistractorPostprocessor(mine))
