"""A retriever of LlamaIndex with a guard behind it, for code that takes a retriever and no postprocessors."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import NodeWithScore, QueryBundle

from ragguard.errors import InvalidInput
from ragguard.guard import DistractorGuard
from ragguard_llamaindex.nodes import TextOf
from ragguard_llamaindex.postprocessor import DistractorPostprocessor


class GuardedRetriever(BaseRetriever):
    """Returns what its inner retriever finds, without what would mislead the model.

    Args:
        retriever: The retriever that is asked.
        guard: The guard that judges.
        text_of: A function from a node to the text that the model reads of it. None: LlamaIndex's own view, the
            metadata included (`MetadataMode.LLM`).
        settings: What LlamaIndex's retrievers take besides, such as `callback_manager`.
    """

    def __init__(
        self,
        retriever: BaseRetriever,
        guard: DistractorGuard,
        *,
        text_of: TextOf | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(retriever, BaseRetriever):
            raise InvalidInput(
                "retriever", retriever, "a retriever of LlamaIndex, such as index.as_retriever()"
            )
        self.retriever, self.guard = retriever, guard
        self._postprocessor = DistractorPostprocessor(guard, text_of=text_of)
        super().__init__(**settings)

    def _get_prompt_modules(self) -> PromptMixinType:
        return {"retriever": self.retriever}

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        nodes = self.retriever.retrieve(query_bundle)
        return self._postprocessor.postprocess_nodes(nodes, query_bundle)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        nodes = await self.retriever.aretrieve(query_bundle)
        return await self._postprocessor.apostprocess_nodes(nodes, query_bundle)
