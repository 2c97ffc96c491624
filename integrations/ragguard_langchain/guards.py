"""The guard after a retrieval: as a document compressor, and around a retriever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
    Callbacks,
)
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.retrievers import BaseRetriever, RetrieverLike
from langchain_core.runnables import Runnable
from pydantic import ConfigDict, Field

from ragguard.capture.documents import snapshot, unpacked
from ragguard.errors import InvalidInput
from ragguard.guard import DistractorGuard
from ragguard.guard.items import apruned, checked, pruned
from ragguard_langchain.attachment import report


class DistractorFilter(BaseDocumentCompressor):
    """Drops the documents that would mislead the model.

        ContextualCompressionRetriever(base_compressor=DistractorFilter(guard), base_retriever=retriever)

    What is kept are the very documents that came, in their order. Everything is kept where there is no query, no
    time or no engine, and documents without a text always. A captured step says what was dropped, and why.

    Args:
        guard: The guard that judges.
        settings: What LangChain's compressors take besides.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    guard: DistractorGuard = Field(exclude=True)

    def __init__(self, guard: DistractorGuard, **settings: Any) -> None:
        settings["guard"] = checked(guard)
        super().__init__(**settings)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Returns the documents that stay."""
        if not documents:
            return documents
        verdict = pruned(self.guard, query, unpacked(snapshot(documents)))
        report(verdict, query, callbacks)
        return verdict.decision.of(documents)

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Returns the documents that stay."""
        if not documents:
            return documents
        verdict = await apruned(self.guard, query, unpacked(snapshot(documents)))
        report(verdict, query, callbacks)
        return verdict.decision.of(documents)


class GuardedRetriever(BaseRetriever):
    """Returns what its inner retriever finds, without what would mislead the model.

        GuardedRetriever(vectorstore.as_retriever(), DistractorGuard(engine))

    Further arguments of a call (`invoke(query, k=3)`) go to the inner retriever.

    Args:
        retriever: The retriever that is asked.
        guard: The guard that judges.
        settings: What LangChain's retrievers take besides, such as `tags` and `metadata`.
    """

    model_config = ConfigDict(extra="forbid")

    retriever: RetrieverLike = Field(exclude=True)
    guard: DistractorGuard = Field(exclude=True)

    def __init__(
        self,
        retriever: RetrieverLike,
        guard: DistractorGuard,
        **settings: Any,
    ) -> None:
        if not isinstance(retriever, Runnable):
            raise InvalidInput(
                "retriever", retriever, "a retriever of LangChain, such as vectorstore.as_retriever()"
            )
        settings |= {"retriever": retriever, "guard": checked(guard)}
        super().__init__(**settings)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **settings: Any
    ) -> list[Document]:
        found = self.retriever.invoke(query, {"callbacks": run_manager.get_child()}, **settings)
        guarding = DistractorFilter(self.guard)
        return list(guarding.compress_documents(found, query, run_manager.get_child()) or ())

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **settings: Any
    ) -> list[Document]:
        found = await self.retriever.ainvoke(query, {"callbacks": run_manager.get_child()}, **settings)
        guarding = DistractorFilter(self.guard)
        return list(await guarding.acompress_documents(found, query, run_manager.get_child()) or ())
