"""What LlamaIndex pipelines of the usual kinds read: of the retrieved nodes, those in a later prompt."""

from __future__ import annotations

from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.workflow import Event, StartEvent, StopEvent, Workflow, step
from support.guards import guarding
from support.llamaindex_parts import QUESTION, ListRetriever, Says, ids

from ragguard_llamaindex import DistractorPostprocessor


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

    from ragguard.capture.handle import RunHandle

    with RunHandle(recorder, QUESTION):
        Says().complete(f"From {Titled().retrieve(QUESTION)[0].node.text} {QUESTION}")
    (step,) = captured.run.steps
    assert [one.text for one in step.passages] == ["Ada Berg founded Nordlys."]
    assert step.candidates[0].text.startswith("title: Firms")
