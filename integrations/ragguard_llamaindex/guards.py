"""The guard after a retrieval: as a node postprocessor, and around a retriever."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NoReturn

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index_instrumentation import get_dispatcher
from pydantic import ConfigDict, Field

from ragguard.capture.decisions import Verdict
from ragguard.capture.shapes import question_in
from ragguard.errors import InvalidInput
from ragguard.guard import DistractorGuard
from ragguard.guard.items import apruned, checked, pruned
from ragguard_llamaindex.instrumentation import attached
from ragguard_llamaindex.messages import without_rewriting
from ragguard_llamaindex.nodes import taken, unpacked

dispatcher = get_dispatcher(__name__)


class DistractorPostprocessor(BaseNodePostprocessor):
    """Drops the nodes that would mislead the model: `node_postprocessors=[DistractorPostprocessor(guard)]`.

    What is kept are the very nodes that came, in their order. Nodes without a text (images) are kept, and so is
    everything where there is no query, no time or no engine. What was dropped and why is part of the captured step.

    Args:
        guard: The guard that judges.
        settings: What LlamaIndex's postprocessors take besides, such as `callback_manager`.
    """

    model_config = ConfigDict(extra="forbid")

    guard: DistractorGuard = Field(exclude=True)

    def __init__(self, guard: DistractorGuard, **settings: Any) -> None:
        settings["guard"] = checked(guard)
        super().__init__(**settings)

    def __getstate__(self) -> NoReturn:
        """Raises TypeError: LlamaIndex would leave the guard out of a pickle, and the copy would guard nothing."""
        raise TypeError("a guard cannot be pickled: make one in each process")

    @classmethod
    def class_name(cls) -> str:
        """Returns the name of this postprocessor for LlamaIndex."""
        return "DistractorPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        given = list(nodes or ())
        return _end(given, pruned(self.guard, _begin(given, query_bundle), unpacked(taken(given))))

    @dispatcher.span
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        given = list(nodes or ())
        return _end(given, await apruned(self.guard, _begin(given, query_bundle), unpacked(taken(given))))


def _begin(nodes: list[NodeWithScore], query_bundle: QueryBundle | None) -> str:
    """Returns the query to judge by; dispatches LlamaIndex's event of a reranker's start."""
    _dispatch(ReRankStartEvent, query=query_bundle, nodes=nodes, top_n=len(nodes), model_name="ragguard")
    # The query with which the captured step is scored, since guard and scorer share a cache.
    return without_rewriting(question_in(query_bundle))


def _end(given: list[NodeWithScore], verdict: Verdict) -> list[NodeWithScore]:
    """Hands the verdict to the handler that captures, and dispatches LlamaIndex's event of a reranker's end."""
    for handler in attached():
        handler.spans.decided(verdict)
    kept = verdict.decision.of(given)
    _dispatch(ReRankEndEvent, nodes=kept)
    return kept


def _dispatch(event: type[ReRankStartEvent | ReRankEndEvent], **fields: Any) -> None:
    """Dispatches an event by which other instrumentations see a reranker. Without the event they write the guard's
    result on the query engine's span."""
    with suppress(ValueError):  # the event refuses nodes of other types
        dispatcher.event(event(**fields))


class GuardedRetriever(BaseRetriever):
    """Returns what its inner retriever finds, without what would mislead the model.

    Args:
        retriever: The retriever that is asked.
        guard: The guard that judges.
        settings: What LlamaIndex's retrievers take besides, such as `callback_manager`.
    """

    def __init__(self, retriever: BaseRetriever, guard: DistractorGuard, **settings: Any) -> None:
        if not isinstance(retriever, BaseRetriever):
            raise InvalidInput(
                "retriever", retriever, "a retriever of LlamaIndex, such as index.as_retriever()"
            )
        self.retriever, self.guard = retriever, guard
        self._postprocessor = DistractorPostprocessor(guard)
        super().__init__(**settings)

    def _get_prompt_modules(self) -> PromptMixinType:
        return {"retriever": self.retriever}

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        nodes = self.retriever.retrieve(query_bundle)
        return self._postprocessor.postprocess_nodes(nodes, query_bundle)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        nodes = await self.retriever.aretrieve(query_bundle)
        return await self._postprocessor.apostprocess_nodes(nodes, query_bundle)
