"""The guard as a node postprocessor: between what was retrieved and the model that reads it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index_instrumentation import get_dispatcher
from pydantic import Field

from ragguard.capture.decisions import Verdict
from ragguard.errors import InvalidInput
from ragguard.guard import DistractorGuard
from ragguard.records import Decision, Passage
from ragguard_llamaindex.instrumentation import attached
from ragguard_llamaindex.messages import text_of, undressed
from ragguard_llamaindex.nodes import taken, unpacked

dispatcher = get_dispatcher(__name__)


class DistractorPostprocessor(BaseNodePostprocessor):
    """Drops the nodes that would mislead the model: `node_postprocessors=[DistractorPostprocessor(guard)]`.

    What is kept are the very nodes that came, in their order. Nodes without a text (images) are kept, and so is
    everything where there is no query, no time or no engine. What was dropped and why is part of the captured step.
    """

    guard: DistractorGuard = Field(exclude=True)

    def __init__(self, guard: DistractorGuard, **settings: Any) -> None:
        if not isinstance(guard, DistractorGuard):
            raise InvalidInput("guard", guard, 'a DistractorGuard, such as DistractorGuard("nano")')
        settings["guard"] = guard
        super().__init__(**settings)

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name for this postprocessor."""
        return "DistractorPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        judging = _Judging(nodes, query_bundle)
        try:
            decision = self.guard.prune(judging.query, judging.readable) if judging.query else None
        except Exception as error:  # noqa: BLE001 - the guard must not be the reason that an answer is missing
            decision = judging.failed(error)
        return judging.end(decision)

    @dispatcher.span
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        judging = _Judging(nodes, query_bundle)
        try:
            decision = await self.guard.aprune(judging.query, judging.readable) if judging.query else None
        except Exception as error:  # noqa: BLE001 - as above
            decision = judging.failed(error)
        return judging.end(decision)


class _Judging:
    """Some nodes on their way through the guard."""

    def __init__(self, nodes: Sequence[NodeWithScore], query_bundle: QueryBundle | None) -> None:
        self.nodes = list(nodes or ())
        self.passages = unpacked(taken(self.nodes))
        self.ranks = [rank for rank, one in enumerate(self.passages, 1) if one.text.strip()]
        """Which of the nodes the guard can read."""
        asked = text_of(query_bundle)
        handlers = attached()
        # The question that the step is scored with, where somebody captures: guard and scorer share a cache.
        self.query = handlers[0].spans.meant(asked) if handlers else undressed(asked)
        _tell(
            ReRankStartEvent,
            query=query_bundle,
            nodes=self.nodes,
            top_n=len(self.nodes),
            model_name="ragguard",
        )

    @property
    def readable(self) -> list[Passage]:
        return [self.passages[rank - 1] for rank in self.ranks]

    def failed(self, error: Exception) -> Decision:
        return Decision(self.passages, status="error", reason=f"{type(error).__name__}: {error}")

    def end(self, decision: Decision | None) -> list[NodeWithScore]:
        """The nodes that stay; those who capture are told of the rest."""
        decision = decision or Decision(self.passages, reason="no query")
        dropped = [replace(drop, position=self.ranks[drop.position - 1]) for drop in decision.dropped]
        gone = {drop.position for drop in dropped}
        kept = [passage for rank, passage in enumerate(self.passages, 1) if rank not in gone]
        verdict = Verdict(replace(decision, kept=kept, dropped=dropped), self.passages)
        for handler in attached():
            handler.spans.decided(verdict)
        nodes = [node for rank, node in enumerate(self.nodes, 1) if rank not in gone]
        _tell(ReRankEndEvent, nodes=nodes)
        return nodes


def _tell(event: type[ReRankStartEvent | ReRankEndEvent], **fields: Any) -> None:
    """Tells other instrumentations, which take this for a reranker: else they put it on the engine's span."""
    with suppress(ValueError):  # it refuses nodes that are none
        dispatcher.event(event(**fields))
