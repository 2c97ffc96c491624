"""Query and chat engines and nested retrievers: which runs, steps and sub-steps they make, of how many places."""

from __future__ import annotations

import pytest
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
)
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import (
    CitationQueryEngine,
    RetrieverQueryEngine,
    RouterQueryEngine,
    SubQuestionQueryEngine,
)
from llama_index.core.response_synthesizers import Generation, get_response_synthesizer
from llama_index.core.response_synthesizers.no_text import NoText
from llama_index.core.retrievers import QueryFusionRetriever, RecursiveRetriever
from llama_index.core.schema import IndexNode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.selectors import LLMMultiSelector
from llama_index.core.tools import QueryEngineTool
from llama_index_instrumentation.dispatcher import instrument_tags
from support.captured import ids
from support.guards import guarding
from support.llamaindex_parts import QUESTION, ListRetriever, QuestionPerTool, Says

from ragguard.capture.events import StepAmended
from ragguard.capture.handle import RunHandle
from ragguard_llamaindex import DistractorPostprocessor, GuardedRetriever

pytestmark = pytest.mark.usefixtures("recorder")


def engine(retriever=None, text="Ada Berg", **settings):
    return RetrieverQueryEngine.from_args(retriever or ListRetriever(), llm=Says(text=text), **settings)


@pytest.mark.parametrize("synthesizer", [NoText, Generation])
async def test_engine_that_shows_its_model_no_nodes_reads_none(captured, synthesizer):
    blind = engine(response_synthesizer=synthesizer(llm=Says()))
    blind.query(QUESTION)
    await blind.aquery(QUESTION)
    for run in captured.runs:
        assert [(ids(step.passages), len(step.candidates)) for step in run.steps] == [([], 2)]


def test_pieces_of_a_citation_engine_hold_the_passages(captured):
    CitationQueryEngine.from_args(None, llm=Says(), retriever=ListRetriever()).query(QUESTION)
    (step,) = captured.run.steps
    assert ids(step.candidates) == ["shelf-0", "shelf-1"]
    assert step.passages == step.candidates


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("kind", [ContextChatEngine, CondensePlusContextChatEngine])
async def test_chat_engines(captured, kind, mode):
    chat = kind.from_defaults(
        retriever=ListRetriever(),
        llm=Says(),
        memory=ChatMemoryBuffer.from_defaults(),
        node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.95)],
    )
    chat.chat(QUESTION) if mode == "sync" else await chat.achat(QUESTION)
    run = captured.run
    assert (run.question, run.answer, run.name) == (QUESTION, "Ada Berg", kind.__name__)
    assert ids(run.steps[0].candidates) == ["shelf-0", "shelf-1"]
    assert ids(run.steps[0].passages) == ["shelf-0"]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("kind", [CondenseQuestionChatEngine, CondensePlusContextChatEngine])
async def test_a_runs_question_is_the_condensed_one(captured, mode, kind):
    """What belief is asked about must stand alone; what the user said is kept beside it."""
    retrieving = (
        {"query_engine": engine()} if kind is CondenseQuestionChatEngine else {"retriever": ListRetriever()}
    )
    chat = kind.from_defaults(
        **retrieving, llm=Says(text="Who founded Nordlys?"), memory=ChatMemoryBuffer.from_defaults()
    )
    chat.chat("hello") if mode == "sync" else await chat.achat("hello")
    chat.chat("and who founded it?") if mode == "sync" else await chat.achat("and who founded it?")
    second = captured.runs[1]
    assert second.question == second.steps[0].query == "Who founded Nordlys?"
    assert second.metadata == {"ragguard.asked": "and who founded it?"}


def tools_of(*names):
    return [
        QueryEngineTool.from_defaults(engine(ListRetriever(name)), name=name, description=name)
        for name in names
    ]


@pytest.mark.parametrize("use_async", [False, True])
async def test_sub_questions_are_steps_of_one_turn(captured, use_async):
    sub_question_engine = SubQuestionQueryEngine.from_defaults(
        tools_of("left", "right"),
        question_gen=QuestionPerTool(),
        llm=Says(),
        use_async=use_async,
        verbose=False,
    )
    await sub_question_engine.aquery(QUESTION) if use_async else sub_question_engine.query(QUESTION)
    run = captured.run
    assert (run.question, run.answer) == (QUESTION, "Ada Berg")
    assert [(step.query, step.tool, step.turn, ids(step.passages)[0]) for step in run.steps] == [
        ("part left", "left", 0, "left-0"),
        ("part right", "right", 0, "right-0"),
    ]


CHOICE = '[{"choice": 1, "reason": "r"}, {"choice": 2, "reason": "r"}]'


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_a_router_that_asks_two_engines(captured, mode):
    router = RouterQueryEngine.from_defaults(
        tools_of("left", "right"), llm=Says(), selector=LLMMultiSelector.from_defaults(llm=Says(text=CHOICE))
    )
    router.query(QUESTION) if mode == "sync" else await router.aquery(QUESTION)
    run = captured.run
    assert run.question == QUESTION
    assert {(step.turn, ids(step.passages)[0]) for step in run.steps} == {(0, "left-0"), (0, "right-0")}


@pytest.mark.parametrize("mode", ["sync", "async", "nested"])
async def test_fusion_is_one_step_with_sub_steps(captured, mode):
    fusion = QueryFusionRetriever(
        [ListRetriever("left"), ListRetriever("right")],
        llm=Says(text="first rewrite\nsecond rewrite"),
        num_queries=2,
        use_async=mode == "nested",
        mode="relative_score",
    )
    result = await fusion.aretrieve(QUESTION) if mode == "async" else fusion.retrieve(QUESTION)
    (step,) = captured.run.steps
    assert (step.query, len(step.sub_steps)) == (QUESTION, 4)
    assert ids(step.passages) == [node.node_id for node in result]
    assert {(sub.query, ids(sub.passages)[0]) for sub in step.sub_steps} == {
        (query, f"{name}-0") for query in (QUESTION, "first rewrite") for name in ("left", "right")
    }
    assert {sub.name for sub in step.sub_steps} == {"ListRetriever"}
    # Fusion rescales the scores of the very nodes that its arms gave.
    assert {passage.score for sub in step.sub_steps for passage in sub.passages} == {1.0, 0.9}


class Links(ListRetriever):
    """Gives one node that leads elsewhere."""

    def _retrieve(self, query_bundle):
        return [NodeWithScore(node=IndexNode(text="see there", index_id="there", id_="link"), score=0.5)]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("there", ["retriever", "engine"])
async def test_a_recursive_retriever_is_one_step(captured, mode, there):
    inner = {"there": ListRetriever("deep") if there == "retriever" else engine(ListRetriever("deep"))}
    recursive = RecursiveRetriever(
        "root",
        retriever_dict={"root": Links(), **(inner if there == "retriever" else {})},
        query_engine_dict=inner if there == "engine" else {},
    )
    recursive.retrieve(QUESTION) if mode == "sync" else await recursive.aretrieve(QUESTION)
    (step,) = captured.run.steps
    assert [ids(sub.passages)[0] for sub in step.sub_steps] == ["link", "deep-0"]
    assert not any(isinstance(event, StepAmended) for event in captured.events)


def test_a_pipeline_written_by_hand_inside_a_run(recorder, captured):
    cutoff = SimilarityPostprocessor(similarity_cutoff=0.95)
    with RunHandle(recorder, QUESTION):
        found = ListRetriever("one").retrieve("first hop")
        kept = cutoff.postprocess_nodes(ListRetriever("two").retrieve("second hop"), query_str="second hop")
        get_response_synthesizer(llm=Says()).synthesize(QUESTION, [*found, *kept])
    run = captured.run
    assert run.answer == "Ada Berg"
    assert [(ids(step.passages), ids(step.candidates)) for step in run.steps] == [
        (["one-0", "one-1"], ["one-0", "one-1"]),
        (["two-0"], ["two-0", "two-1"]),
    ]


def test_synthesis_of_other_texts_reads_nothing_of_the_retrieval(recorder, captured):
    with RunHandle(recorder, QUESTION):
        ListRetriever().retrieve(QUESTION)
        get_response_synthesizer(llm=Says()).synthesize(
            QUESTION, [NodeWithScore(node=TextNode(text="42 rows"))]
        )
    assert ids(captured.run.steps[0].passages) == []


def test_tags_name_the_run_and_its_references(captured):
    tags = {
        "ragguard_references": ["Ada Berg"],
        "ragguard_name": "nightly",
        "ragguard_run_id": "run-7",
        "tenant": "a",
        "object": object(),
    }
    with instrument_tags(tags):
        engine().query(QUESTION)
    run = captured.run
    assert (run.name, run.references) == ("nightly", ["Ada Berg"])
    assert run.metadata == {"tenant": "a", "ragguard.caller_id": "run-7"}


MODES = pytest.mark.parametrize("mode", ["sync", "async"])


class First(BaseNodePostprocessor):
    """A reranker that keeps the first two."""

    def _postprocess_nodes(self, nodes, query_bundle=None):
        return nodes[:2]


def retriever(count=4, top_k=5):
    nodes = [TextNode(text=f"shelf {number} about it", id_=f"shelf-{number}") for number in range(count)]
    return VectorStoreIndex(nodes, embed_model=MockEmbedding(4)).as_retriever(similarity_top_k=top_k)


async def retrieve(one, mode):
    return one.retrieve("who?") if mode == "sync" else await one.aretrieve("who?")


async def ask_with(mode, *postprocessors):
    engine = RetrieverQueryEngine.from_args(
        retriever(), llm=Says(), node_postprocessors=list(postprocessors), use_async=mode == "async"
    )
    return engine.query("who?") if mode == "sync" else await engine.aquery(QueryBundle("who?"))


@MODES
async def test_a_retriever_has_as_many_places_as_it_was_asked_for(captured, mode):
    await retrieve(retriever(2, 3), mode)
    assert captured.places == (3, 3, 2)


@MODES
async def test_a_guard_leaves_the_places_of_the_retriever_before_it(captured, mode):
    await retrieve(GuardedRetriever(retriever(), guarding()), mode)
    assert captured.places == (5, 5, 2)


@MODES
async def test_a_reranker_chooses_how_many_places_there_are(captured, mode):
    await ask_with(mode, First(), DistractorPostprocessor(guarding()))
    assert captured.places[:2] == (2, 2)
