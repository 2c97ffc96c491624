"""What is captured of a node, its text as the model reads it, and which of the nodes are read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import IndexNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.workflow import Event, StartEvent, StopEvent, Workflow, step
from support.captured import ids
from support.guards import guarding
from support.llamaindex_parts import QUESTION, ListRetriever, Says

import ragguard
from ragguard import RagGuard
from ragguard.capture.handle import RunHandle
from ragguard_llamaindex import DistractorPostprocessor, GuardedRetriever, instrument, uninstrument
from ragguard_llamaindex.nodes import taken, unpacked


class Finds(BaseRetriever):
    """Gives the nodes that it was made with."""

    def __init__(self, *nodes):
        self.nodes = nodes
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle):
        return [NodeWithScore(node=node, score=1.0 - n / 10) for n, node in enumerate(self.nodes)]


words = st.text(alphabet="ab {}\n:", max_size=6)


@given(
    text=words,
    metadata=st.dictionaries(words, words | st.integers(), max_size=3),
    hidden=st.lists(words, max_size=2),
    separator=words,
    template=st.sampled_from(["{key}: {value}", "{value}", "no key at all", "  {key}  "]),
    whole=st.sampled_from(["{metadata_str}\n\n{content}", "{content} ({metadata_str})", " {content} "]),
    kind=st.sampled_from([TextNode, IndexNode]),
)
def test_a_passages_text_is_what_llamaindex_shows_a_model(
    text, metadata, hidden, separator, template, whole, kind
):
    node = kind(
        text=text, metadata=metadata, excluded_llm_metadata_keys=hidden, metadata_separator=separator,
        metadata_template=template, text_template=whole, **({"index_id": "i"} if kind is IndexNode else {}),
    )  # fmt: skip
    (passage,) = unpacked(taken([NodeWithScore(node=node)]))
    assert passage.text == node.get_content(MetadataMode.LLM)


def test_a_node_that_changes_later_is_captured_as_it_was():
    node = TextNode(text="before", metadata={"title": "one"}, excluded_llm_metadata_keys=[])
    snapshot = taken([NodeWithScore(node=node)])
    node.text, node.metadata["title"] = "after", "two"
    node.excluded_llm_metadata_keys.append("title")
    assert unpacked(snapshot)[0].text == "title: one\n\nbefore"


def test_an_engines_passages_are_what_its_synthesizer_reads(recorder, captured):
    node = TextNode(id_="a", text="It was founded by Ada Berg.", metadata={"title": "Nordlys"})
    RetrieverQueryEngine.from_args(Finds(node), llm=Says()).query("Who founded Nordlys?")
    (step,) = captured.run.steps
    assert step.passages[0].text == "title: Nordlys\n\nIt was founded by Ada Berg."
    assert step.passages[0].metadata == {"title": "Nordlys"}
    assert step.candidates == step.passages


def test_a_template_that_fails_costs_its_passage_only(recorder, captured):
    broken = TextNode(text="a", metadata={"k": "v"}, text_template="{nothing}")
    Finds(broken, TextNode(text="fine")).retrieve("x")
    (step,) = captured.run.steps
    assert [passage.text for passage in step.passages] == ["a", "fine"]
    assert "KeyError" in step.passages[0].metadata["ragguard.unformatted"]


def test_text_that_came_before_is_shown_with_its_own_metadata_and_templates():
    node = TextNode(text="alpha", metadata={"title": "Ada"})
    for name, value in (
        ("metadata", {"title": 1}), ("metadata", {"title": True}), ("metadata", {"title": ["Ada"]}),
        ("metadata_template", "{key}={value}"), ("excluded_llm_metadata_keys", ["title"]),
    ):  # fmt: skip
        setattr(node, name, value)
        for _ in range(2):
            (passage,) = unpacked(taken([NodeWithScore(node=node, score=0.5)]))
            assert passage.text == node.get_content(MetadataMode.LLM)


class Found(Event):
    nodes: list[NodeWithScore]


class Kept(Event):
    nodes: list[NodeWithScore]


class Rag(Workflow):
    """Retrieves, chooses and synthesizes, each in a step of its own, as LlamaIndex's own example does."""

    def __init__(self, choose, synthesize=None):
        super().__init__()
        self.choose, self.by_hand = choose, synthesize

    @step
    async def retrieve(self, ev: StartEvent) -> Found:
        return Found(nodes=await ListRetriever(count=4).aretrieve(QUESTION))

    @step
    async def rerank(self, ev: Found) -> Kept:
        return Kept(nodes=self.choose(ev.nodes))

    @step
    async def synthesize(self, ev: Kept) -> StopEvent:
        if self.by_hand is not None:
            return StopEvent(result=self.by_hand(ev.nodes))
        answer = await get_response_synthesizer(llm=Says()).asynthesize(QUESTION, ev.nodes)
        return StopEvent(result=answer)


def guarded(found):
    return DistractorPostprocessor(guarding()).postprocess_nodes(found, query_str=QUESTION)


async def read(captured, workflow):
    await workflow.run()
    (step,) = captured.run.steps
    assert ids(step.candidates) == ["shelf-0", "shelf-1", "shelf-2", "shelf-3"]
    return ids(step.passages), step.metadata.get("ragguard.delivered", "")


async def test_guard_in_a_step_of_its_own_is_the_steps_decision(recorder, captured):
    await Rag(guarded).run()
    (step,) = captured.run.steps
    assert [drop.passage.id for drop in step.decision.dropped] == ["shelf-1", "shelf-3"]


async def test_nodes_that_a_grading_model_rejected_were_not_read(recorder, captured):
    def graded(found):
        return [
            one
            for number, one in enumerate(found)
            if Says(text="no" if number % 2 else "yes").complete(f"Relevant? {one.text}").text == "yes"
        ]

    assert await read(captured, Rag(graded)) == (["shelf-0", "shelf-2"], "")
    assert captured.run.steps[0].metadata["ragguard.judged_only"] == 2


def test_node_whose_metadata_the_prompt_leaves_out_was_read(recorder, captured):
    titled = NodeWithScore(
        node=TextNode(id_="t", text="Ada Berg founded Nordlys.", metadata={"title": "Firms"})
    )

    class Titled(ListRetriever):
        def _retrieve(self, query_bundle):
            return [titled]

    with RunHandle(recorder, QUESTION):
        Says().complete(f"From {Titled().retrieve(QUESTION)[0].node.text} {QUESTION}")
    (step,) = captured.run.steps
    assert [one.text for one in step.passages] == ["Ada Berg founded Nordlys."]
    assert step.candidates[0].text.startswith("title: Firms")


def test_bare_texts_of_what_a_guarded_retriever_kept_were_read(recorder, captured):
    shelf = [
        TextNode(id_=f"shelf-{n}", text=f"shelf {n} about", metadata={"title": "Firms"}) for n in range(4)
    ]
    with RunHandle(recorder, QUESTION):
        kept = GuardedRetriever(Finds(*shelf), guarding()).retrieve(QUESTION)
        Says().complete(f"From {' '.join(one.node.text for one in kept)} {QUESTION}")
    (step,) = captured.run.steps
    assert ids(step.passages) == ["shelf-0", "shelf-2"]


class OwnPrompt(Workflow):
    """Retrieves three nodes and puts the first one into its prompt."""

    @step
    async def answer(self, ev: StartEvent) -> StopEvent:
        with ragguard.paused():
            found = await ListRetriever(count=3).aretrieve("who?")
        ragguard.retrieved("who?", found[:1])
        return StopEvent(result="Ada Berg")


async def test_a_record_of_what_the_prompt_holds_stands_for_the_paused_retrieval():
    with RagGuard("nano", store=None, scorers=()) as rg:
        instrument(rg)
        try:
            await OwnPrompt().run(question="Who?")
        finally:
            uninstrument()
        await rg.aflush(timeout=60)
        (run,) = rg.runs()
        assert [[passage.text for passage in one.passages] for one in run.steps] == [["shelf 0 about who?"]]
