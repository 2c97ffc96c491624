"""Bad input, failures, cancellation and crowds: nothing reaches the application, nothing mixes, nothing stays."""

from __future__ import annotations

import asyncio
import gc
import os
from types import SimpleNamespace

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import Document, ImageNode, MediaResource, Node, NodeWithScore, TextNode
from llama_index.core.tools import RetrieverTool
from llama_index_instrumentation import get_dispatcher
from support.captured import Captured
from support.llamaindex_parts import QUESTION, ListRetriever, OverridingRetriever, Says, call, nodes, scripted
from support.polling import aeventually

from ragguard.capture.recorder import Recorder
from ragguard_llamaindex import instrument, uninstrument
from ragguard_llamaindex.instrumentation import SpanHandler

ROOT = get_dispatcher("root")


def engine(retriever=None, text="Ada Berg"):
    return RetrieverQueryEngine.from_args(retriever or ListRetriever(), llm=Says(text=text))


def open_calls():
    (handler,) = (one for one in ROOT.span_handlers if isinstance(one, SpanHandler))
    return len(handler.spans)


def scored(node, score=0.5):
    return NodeWithScore(node=node, score=score)


@pytest.mark.parametrize(
    ("what", "texts"),
    [
        (None, []),
        ([], []),
        (["a text"], ["a text"]),
        ("a text", ["a text"]),
        ([TextNode(text="no score")], ["no score"]),
        ([None, 7], ["", ""]),
        ({"text": "a mapping"}, ["a mapping"]),
    ],
    ids=["none", "nothing", "strings", "one string", "bare nodes", "no nodes at all", "mapping"],
)
def test_unusual_result_of_a_retriever_is_recorded_as_it_is(recorder, captured, what, texts):
    assert OverridingRetriever(what).retrieve(QUESTION) is what
    (step,) = captured.run.steps
    assert (step.status, [passage.text for passage in step.passages]) == ("ok", texts)


def test_nodes_that_are_no_text(recorder, captured):
    picture = MediaResource(url="http://example.com/a.png")
    given = [
        scored(ImageNode(id_="image", image_url="http://example.com/a.png")),
        scored(Node(id_="both", text_resource=MediaResource(text="caption"), image_resource=picture)),
        scored(Node(id_="video", video_resource=picture)),
        scored(Document(id_="document", text="whole")),
        scored(TextNode(id_="empty", text="")),
    ]
    OverridingRetriever(given).retrieve(QUESTION)
    (step,) = captured.run.steps
    got = {passage.id: (passage.text, passage.metadata.get("ragguard.content")) for passage in step.passages}
    assert got == {
        "image": ("", "image"),
        "both": ("caption", None),
        "video": ("", "video"),
        "document": ("whole", None),
        "empty": ("", None),
    }


def test_a_node_class_that_raises(recorder, captured):
    class Broken(Node):
        def get_content(self, *args, **kwargs):
            raise RuntimeError("cannot be read")

    class Glued(dict):
        def copy(self):
            raise RuntimeError("no")

    class Sealed(TextNode):
        def __getattribute__(self, name):
            if name == "metadata":
                raise RuntimeError("sealed")
            return super().__getattribute__(name)

    glued = TextNode.model_construct(id_="glued", text="glued", metadata=Glued(page=1))
    given = [Broken(id_="broken"), glued, Sealed(text="sealed"), TextNode(text="fine")]
    OverridingRetriever([scored(node) for node in given]).retrieve(QUESTION)
    (step,) = captured.run.steps
    assert [(passage.text, passage.metadata) for passage in step.passages] == [
        ("", {"ragguard.content": "NodeWithScore, unreadable: RuntimeError"}),
        ("page: 1\n\nglued", {"page": 1}),
        ("", {"ragguard.content": "NodeWithScore, unreadable: RuntimeError"}),
        ("fine", {}),
    ]


def test_own_faults_are_counted_and_never_seen(captured, caplog):
    def broken(event):
        raise OSError("disk is full")

    recorder = Recorder(broken)
    instrument(SimpleNamespace(recorder=recorder))
    try:
        for _ in range(3):
            assert str(engine().query(QUESTION)) == "Ada Berg"
    finally:
        uninstrument()
    assert recorder.faults.count >= 3
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("ragguard")]
    assert messages
    assert len(messages) == len(set(messages))


def gated(names=("shelf",)):
    """Retrievers that wait, and an event that tells when all of them do."""
    waiting = asyncio.Event()
    left = list(names)

    def one_more():
        left.pop()
        if not left:
            waiting.set()

    gate = asyncio.Event()
    return [ListRetriever(name, gate=gate, waiting=one_more) for name in names], waiting


@pytest.mark.parametrize("how", ["by its handler", "by its task"])
async def test_an_agent_that_is_cancelled(recorder, captured, how):
    slow, waiting = gated(["left", "right"])
    tools = [RetrieverTool.from_defaults(one, name=one.name) for one in slow]
    agent = FunctionAgent(tools=tools, llm=scripted([call("left", input="a"), call("right", input="b")]))
    handler = agent.run(user_msg=QUESTION)
    await waiting.wait()
    if how == "by its handler":
        await handler.cancel_run()
    else:
        handler.cancel()
    await asyncio.gather(handler, return_exceptions=True)
    await aeventually(lambda: captured.run.status != "open")
    run = captured.run
    assert run.status == "cancelled"
    assert sorted((one.query, one.status) for one in run.steps) == [("a", "cancelled"), ("b", "cancelled")]
    for one in slow:
        one.gate.set()  # a task that is cancelled leaves LlamaIndex's last tool call waiting in the background
    await aeventually(lambda: open_calls() == 0)


def remembered():
    """What is kept of calls, in the whole process."""
    gc.collect()
    kept = [one for one in gc.get_objects() if type(one).__module__ == "ragguard_llamaindex.calls"]
    return [one for one in kept if type(one).__name__ in ("Call", "Invocation")]


async def test_many_cancelled_runs_leave_nothing_behind(recorder, captured):
    before = remembered()  # another test's thread may still hold its own
    gate = asyncio.Event()
    slow = engine(ListRetriever(gate=gate))

    async def one():
        task = asyncio.create_task(slow.aquery(QUESTION))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    for _ in range(100):
        await one()
    assert len(captured.runs) == 100
    assert {run.status for run in captured.runs} == {"cancelled"}
    assert (open_calls(), len(recorder.here.runs), len(recorder.here.steps)) == (0, 0, 0)
    captured.events.clear()
    assert [one for one in remembered() if not any(one is old for old in before)] == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_child_begins_without_the_open_calls_of_its_parent(recorder, captured):
    class Forking(ListRetriever):
        def _retrieve(self, query_bundle):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    before = open_calls()
                    ListRetriever().retrieve("in the child")
                    status = (
                        0
                        if (before, [run.question for run in captured.runs[1:]]) == (0, ["in the child"])
                        else 2
                    )
                finally:
                    os._exit(status)
            statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            return nodes("parent", 1)

    statuses = []
    engine(Forking()).query(QUESTION)
    assert (statuses, captured.run.status) == ([0], "ok")


def rg_of(captured):
    return SimpleNamespace(recorder=Recorder(captured))


@pytest.mark.parametrize("other", [False, True])
def test_instrumenting_again_attaches_the_last_ragguard_alone(other):
    first, second = Captured(), Captured()
    rg = rg_of(first)
    instrument(rg)
    instrument(rg_of(second) if other else rg)
    try:
        engine().query(QUESTION)
    finally:
        uninstrument()
    assert [len(one.runs) for one in (first, second)] == ([0, 1] if other else [1, 0])
    assert [len(run.steps) for one in (first, second) for run in one.runs] == [1]


def test_uninstrument_leaves_the_dispatcher_as_it_was():
    handlers, events = list(ROOT.span_handlers), list(ROOT.event_handlers)
    captured = Captured()
    instrument(rg_of(captured))
    uninstrument()
    uninstrument()
    assert all(one is other for one, other in zip(ROOT.span_handlers, handlers, strict=True))
    assert all(one is other for one, other in zip(ROOT.event_handlers, events, strict=True))
    engine().query(QUESTION)
    assert captured.events == []


async def test_uninstrument_ends_what_is_under_way():
    captured = Captured()
    rg = rg_of(captured)
    instrument(rg)
    (slow,), waiting = gated()
    task = asyncio.create_task(engine(slow).aquery(QUESTION))
    await waiting.wait()
    uninstrument()
    slow.gate.set()
    assert str(await task) == "Ada Berg"
    assert (captured.run.status, len(rg.recorder.here.runs)) == ("interrupted", 0)
