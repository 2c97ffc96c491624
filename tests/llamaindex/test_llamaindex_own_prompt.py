"""A workflow whose own prompt holds a part of its nodes, captured as docs/how-to/llama-index.md shows it."""

from llama_index.core.workflow import StartEvent, StopEvent, Workflow, step
from support.llamaindex_parts import ListRetriever

import ragguard
from ragguard import RagGuard
from ragguard_llamaindex import instrument, uninstrument


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
