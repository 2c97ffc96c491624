"""What LlamaIndex's models read: streamed calls, sub-agents as tools, nodes that were merged, widened or cut."""

from __future__ import annotations

import asyncio

import pytest
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.postprocessor import MetadataReplacementPostProcessor, PrevNextNodePostprocessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.retrievers import AutoMergingRetriever
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.tools import QueryEngineTool, RetrieverTool
from support.llamaindex_parts import QUESTION, FixedRetriever, ListRetriever, Says, call, nodes, scripted

from ragguard.capture.handle import RunHandle
from ragguard.capture.model_calls import REWRITTEN


@pytest.mark.parametrize("answer", ["Yes", "No", "4"])
async def test_a_word_as_the_answer_of_an_engine_that_a_streaming_agent_calls(recorder, captured, answer):
    engine = RetrieverQueryEngine.from_args(ListRetriever(count=2), llm=Says(text=answer))
    tool = QueryEngineTool.from_defaults(engine, name="firms", description="Knows firms.")
    agent = FunctionAgent(tools=[tool], llm=scripted(call("firms", input="is it so?"), answer))
    await agent.run(user_msg=QUESTION)
    assert [len(passages) for passages in captured.read] == [2]
    assert captured.run.answer == answer


async def test_a_hop_of_a_streaming_agent_is_read_by_the_call_that_asks_for_the_next(recorder, captured):
    tool = RetrieverTool.from_defaults(ListRetriever(), name="search", description="Searches.")
    agent = FunctionAgent(
        tools=[tool],
        llm=scripted(call("search", input="first"), call("search", input="second"), "Ada Berg founded it."),
    )
    await agent.run(user_msg=QUESTION)
    assert [len(passages) for passages in captured.read] == [2, 2]


def answered(retriever, *postprocessors, mode="compact", text="Ada Berg founded it."):
    synthesizer = get_response_synthesizer(llm=Says(text=text), response_mode=mode)
    engine = RetrieverQueryEngine(retriever, synthesizer, node_postprocessors=list(postprocessors))
    return engine.query(QUESTION)


def test_window_of_a_sentence_is_what_was_read(recorder, captured):
    window = "Nordlys is a firm. It was founded by Ada Berg. It is based in Oslo."
    node = TextNode(
        id_="one", text="It was founded by Ada Berg.", metadata={"window": window},
        excluded_llm_metadata_keys=["window"],
    )  # fmt: skip
    answered(
        FixedRetriever([NodeWithScore(node=node, score=0.9)]), MetadataReplacementPostProcessor("window")
    )
    assert captured.read == [[window]]
    (step,) = captured.run.steps
    assert [one.text for one in step.candidates] == ["It was founded by Ada Berg."]
    assert step.passages[0].metadata[REWRITTEN] == "MetadataReplacementPostProcessor"


def test_neighbours_that_a_postprocessor_puts_in_were_read(recorder, captured):
    first, second = (
        TextNode(id_=f"node-{n}", text=f"Part {n} of the story of Nordlys in Oslo.") for n in (1, 2)
    )
    first.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id="node-2")
    second.relationships[NodeRelationship.PREVIOUS] = RelatedNodeInfo(node_id="node-1")
    store = SimpleDocumentStore()
    store.add_documents([first, second])
    nodes = [NodeWithScore(node=first, score=0.9)]
    answered(FixedRetriever(nodes), PrevNextNodePostprocessor(docstore=store, num_nodes=1, mode="next"))
    assert captured.read == [[first.text, second.text]]
    assert [one.metadata.get(REWRITTEN) for one in captured.run.steps[0].passages] == [
        None, "PrevNextNodePostprocessor",
    ]  # fmt: skip


def test_parent_that_was_merged_of_its_chunks_was_read(recorder, captured):
    parts = [f"Sentence {n} tells of harbour {n * 7} and its cranes." for n in range(3)]
    parent = TextNode(id_="parent", text=" ".join(parts))
    leaves = [TextNode(id_=f"leaf-{n}", text=part) for n, part in enumerate(parts)]
    for leaf in leaves:
        leaf.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id="parent")
    parent.relationships[NodeRelationship.CHILD] = [RelatedNodeInfo(node_id=leaf.node_id) for leaf in leaves]
    storage = StorageContext.from_defaults()
    storage.docstore.add_documents([parent, *leaves])
    index = VectorStoreIndex(leaves, storage_context=storage, embed_model=MockEmbedding(embed_dim=2))
    retriever = AutoMergingRetriever(index.as_retriever(similarity_top_k=2), storage)
    answered(retriever)
    assert captured.read == [[parent.text]]
    candidates = [one.id for one in captured.run.steps[0].candidates]
    assert candidates[0] == "parent"
    assert len(candidates) == 3


def test_refining_reads_in_the_order_of_its_calls(recorder, captured):
    answered(ListRetriever(count=3), mode="refine")
    assert captured.read == [[f"shelf {n} about {QUESTION}" for n in range(3)]]


@pytest.mark.parametrize("at_once", [True, False])
async def test_engines_that_find_the_same_nodes_each_read_their_own(recorder, captured, at_once):
    class First(BaseNodePostprocessor):
        def _postprocess_nodes(self, nodes, query_bundle=None):
            return nodes[:1]

    found = nodes("shelf", 3)
    first = RetrieverQueryEngine.from_args(
        FixedRetriever(found[::-1]), llm=Says(text="Ada"), node_postprocessors=[First()]
    )
    second = RetrieverQueryEngine.from_args(FixedRetriever(found), llm=Says(text="Olav"))
    with RunHandle(recorder, QUESTION) as run:
        if at_once:
            await asyncio.gather(first.aquery("first"), second.aquery("second"))
        else:
            first.query("first")
            second.query("second")
        run.answered("Ada and Olav")
    texts = [one.text for one in found]
    read = {step.query: ([one.text for one in step.passages], step.k) for step in captured.run.steps}
    assert read == {"first": (texts[2:], 1), "second": (texts, None)}
