"""The guard as a document compressor: filters a retriever's documents before the model reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import ConfigDict, Field

from ragguard.capture.decisions import Verdict
from ragguard.capture.declarations import checked_text_of
from ragguard.guard import DistractorGuard, items
from ragguard.guard.items import checked
from ragguard_langchain.current import report
from ragguard_langchain.scopes import VerdictReport
from ragguard_langchain.views import TextOf, views


class DistractorFilter(BaseDocumentCompressor):
    """Drops the documents that would mislead the model.

        ContextualCompressionRetriever(base_compressor=DistractorFilter(guard), base_retriever=retriever)

    What is kept are the very documents that came, in their order. Everything is kept where there is no query, no
    time or no engine, and documents without a text always. A captured step says what was dropped, and why.

    Args:
        guard: The guard that judges.
        text_of: A function from a document to the text that the model reads of it. None: its page content.
        settings: What LangChain's compressors take besides.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    guard: DistractorGuard = Field(exclude=True)
    text_of: TextOf | None = Field(default=None, exclude=True)

    def __init__(self, guard: DistractorGuard, *, text_of: TextOf | None = None, **settings: Any) -> None:
        settings["guard"], settings["text_of"] = checked(guard), checked_text_of(text_of)
        super().__init__(**settings)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Returns the documents that stay."""
        if not documents:
            return documents
        kept, verdict = pruned(self.guard, query, documents, self.text_of)
        report(VerdictReport(verdict, query), callbacks)
        return kept

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Returns the documents that stay."""
        if not documents:
            return documents
        kept, verdict = await apruned(self.guard, query, documents, self.text_of)
        report(VerdictReport(verdict, query), callbacks)
        return kept


def pruned(
    guard: DistractorGuard, query: str, documents: Sequence[Document], text_of: TextOf | None = None
) -> tuple[list[Document], Verdict]:
    """Returns the documents that stay, and the verdict of the guard on all of them."""
    return items.pruned(guard, query, documents, views(documents, text_of))


async def apruned(
    guard: DistractorGuard, query: str, documents: Sequence[Document], text_of: TextOf | None = None
) -> tuple[list[Document], Verdict]:
    """Returns the documents that stay, and the verdict of the guard on all of them; for use on an event loop."""
    return await items.apruned(guard, query, documents, views(documents, text_of))
