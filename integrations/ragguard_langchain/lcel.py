"""The guard as a runnable of a chain: takes a mapping with documents and a query, returns it with fewer documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from ragguard.capture.declarations import checked_text_of
from ragguard.errors import InvalidInput
from ragguard.guard import DistractorGuard
from ragguard.guard.items import checked
from ragguard_langchain.current import report
from ragguard_langchain.filter import apruned, pruned
from ragguard_langchain.scopes import VerdictReport
from ragguard_langchain.views import TextOf


def drop_distractors(
    guard: DistractorGuard,
    documents: str = "context",
    query: str = "question",
    *,
    text_of: TextOf | None = None,
) -> Runnable[Mapping[str, Any], dict[str, Any]]:
    """Returns a runnable that drops the documents which would mislead the model.

        {"context": retriever, "question": RunnablePassthrough()} | drop_distractors(guard) | prompt | model

    Everything else in the mapping passes through.

    Args:
        guard: The guard that judges.
        documents: The key of the mapping that holds the documents.
        query: The key of the mapping that holds the query.
        text_of: A function from a document to the text that the model reads of it. None: its page content.
    """
    checked(guard)
    checked_text_of(text_of)

    def drop(given: Mapping[str, Any], config: RunnableConfig) -> dict[str, Any]:
        found, asked = _found(given, documents), _asked(given, query)
        kept, verdict = pruned(guard, asked, found, text_of)
        report(VerdictReport(verdict, asked), config.get("callbacks"))
        return {**given, documents: kept}

    async def adrop(given: Mapping[str, Any], config: RunnableConfig) -> dict[str, Any]:
        found, asked = _found(given, documents), _asked(given, query)
        kept, verdict = await apruned(guard, asked, found, text_of)
        report(VerdictReport(verdict, asked), config.get("callbacks"))
        return {**given, documents: kept}

    return RunnableLambda(drop, afunc=adrop, name="drop_distractors")


def _found(given: object, key: str) -> list[Document]:
    if not isinstance(given, Mapping):
        example = '{"context": retriever, "question": RunnablePassthrough()} | drop_distractors(guard)'
        raise InvalidInput(
            "drop_distractors", given, f"a mapping with documents and their query, such as {example}"
        )
    found = given.get(key)
    if not isinstance(found, (list, tuple)) or not all(isinstance(one, Document) for one in found):
        raise InvalidInput(key, found, f"a list of documents under {key!r}; say which key holds them")
    return list(found)


def _asked(given: Mapping[str, Any], key: str) -> str:
    asked = given.get(key)
    if not isinstance(asked, str):
        raise InvalidInput(key, asked, f"the query, a text, under {key!r}; say which key holds it")
    return asked
