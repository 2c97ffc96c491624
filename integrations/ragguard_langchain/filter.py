"""The guard as a document compressor: between what was retrieved and whoever reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import ConfigDict, Field

from ragguard.capture.decisions import Verdict
from ragguard.errors import InvalidInput
from ragguard.guard import DistractorGuard
from ragguard.records import Decision
from ragguard_langchain.messages import snapshot, unpacked
from ragguard_langchain.verdicts import Told, atell, tell


class DistractorFilter(BaseDocumentCompressor):
    """Drops the documents that would mislead the model.

        ContextualCompressionRetriever(base_compressor=DistractorFilter(guard), base_retriever=retriever)

    What is kept are the very documents that came, in their order. Everything is kept where there is no query, no
    time or no engine, and documents without a text always. A captured step says what was dropped, and why.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    guard: DistractorGuard = Field(exclude=True)

    def __init__(self, guard: DistractorGuard, **settings: Any) -> None:
        settings["guard"] = checked(guard)
        super().__init__(**settings)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """The documents that stay."""
        if not documents:
            return documents
        kept, verdict = pruned(self.guard, query, documents)
        tell(Told(verdict, query), callbacks)
        return kept

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """The documents that stay."""
        if not documents:
            return documents
        kept, verdict = await apruned(self.guard, query, documents)
        await atell(Told(verdict, query), callbacks)
        return kept


def checked(guard: object) -> DistractorGuard:
    """The guard, if it is one."""
    if not isinstance(guard, DistractorGuard):
        raise InvalidInput("guard", guard, 'a DistractorGuard, such as DistractorGuard("nano")')
    return guard


def pruned(
    guard: DistractorGuard, query: str, documents: Sequence[Document]
) -> tuple[list[Document], Verdict]:
    """The documents that stay, and what the guard says of the rest."""
    judging = _Judging(documents)
    try:
        decision = guard.prune(query, judging.readable) if query.strip() else judging.unasked()
    except Exception as error:  # noqa: BLE001 - the guard must not be the reason that an answer is missing
        decision = judging.failed(error)
    return judging.end(decision)


async def apruned(
    guard: DistractorGuard, query: str, documents: Sequence[Document]
) -> tuple[list[Document], Verdict]:
    """As `pruned`, on an event loop."""
    judging = _Judging(documents)
    try:
        decision = await guard.aprune(query, judging.readable) if query.strip() else judging.unasked()
    except Exception as error:  # noqa: BLE001 - as above
        decision = judging.failed(error)
    return judging.end(decision)


class _Judging:
    """Some documents on their way through the guard."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = list(documents)
        self.passages = unpacked(snapshot(self.documents))
        self.ranks = [rank for rank, one in enumerate(self.passages, 1) if one.text.strip()]
        """Which of the documents the guard can read."""
        self.readable = [self.passages[rank - 1] for rank in self.ranks]

    def unasked(self) -> Decision:
        return Decision(self.readable, reason="no query")

    def failed(self, error: Exception) -> Decision:
        return Decision(self.readable, status="error", reason=f"{type(error).__name__}: {error}")

    def end(self, decision: Decision) -> tuple[list[Document], Verdict]:
        dropped = [replace(drop, position=self.ranks[drop.position - 1]) for drop in decision.dropped]
        gone = {drop.position for drop in dropped}
        kept = [passage for rank, passage in enumerate(self.passages, 1) if rank not in gone]
        verdict = Verdict(replace(decision, kept=kept, dropped=dropped), self.passages)
        return [one for rank, one in enumerate(self.documents, 1) if rank not in gone], verdict
