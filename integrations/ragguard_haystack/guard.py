"""The guard as a component: drops the documents that would mislead the model, before a prompt is built of them."""

from __future__ import annotations

from haystack import Document, component

from ragguard.capture.snapshot import passages_of
from ragguard.guard import DistractorGuard
from ragguard.guard.items import apruned, checked, pruned
from ragguard_haystack.tracer import decided


@component
class DocumentGuard:
    """Drops the documents that would mislead the model: `pipeline.add_component("filter", DocumentGuard(guard))`.

    What is kept are the very documents that came, in their order; all of them where there is no time or no engine.

    Args:
        guard: The guard that judges.
    """

    def __init__(self, guard: DistractorGuard) -> None:
        self.guard = checked(guard)

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document]) -> dict[str, list[Document]]:
        """Returns the documents that the model should read."""
        verdict = pruned(self.guard, query, passages_of(documents))
        decided(verdict)
        return {"documents": verdict.decision.of(documents)}

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str, documents: list[Document]) -> dict[str, list[Document]]:
        """Does what `run` does, on an event loop."""
        verdict = await apruned(self.guard, query, passages_of(documents))
        decided(verdict)
        return {"documents": verdict.decision.of(documents)}
