"""Takes snapshots of LangChain's documents, and reads the outputs of its tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from langchain_core.messages import ToolMessage

from ragguard.capture.pipeline_run import RUN_KEYS
from ragguard.capture.snapshot import OwnPassages, passage, passage_of, passages_of, text_of
from ragguard.records import Passage

Taken: TypeAlias = list[Any]
"""A snapshot of a retriever's documents: text, id and metadata of each, one after the other; or passages where there
were no proper documents."""


def snapshot(documents: Any) -> Taken:
    """Returns a copy, made at once, of all that is needed to make passages of documents later: texts by reference,
    metadata as a shallow copy. Only the kind of a stream is noted, since the caller has to read it.

    The result is one flat list, since the garbage collector would visit tuples again and again while it waits.
    """
    if type(documents) is not list and isinstance(documents, Iterator):
        return [passage_of(documents)]
    taken: Taken = []
    add = taken.append
    try:
        for one in documents:
            add(one.page_content)
            add(one.id)
            add(one.metadata.copy())
        return taken
    except Exception:  # noqa: BLE001 - a document of the user's may raise anything; each is looked at by itself now
        return passages_of(documents)


def unpacked(taken: Taken) -> list[Passage]:
    """Returns the passages of a snapshot; called when the step is first read, never in a hook."""
    if taken and isinstance(taken[0], Passage):
        return OwnPassages(taken)
    parts = iter(taken)
    return OwnPassages([
        Passage(text, id or "", None, metadata)
        if type(text) is str
        and (id is None or type(id) is str)
        and type(metadata) is dict
        and "score" not in metadata
        and "relevance_score" not in metadata
        else passage(text, id, None, metadata)
        for text, id, metadata in zip(parts, parts, parts, strict=True)
    ])  # fmt: skip


def tool_text(output: object) -> tuple[str, bool]:
    """Returns the text of a tool's output, and whether it is the text of an error."""
    message = tool_message(output)
    if message is not None:
        return text_of(message.content)[0], message.status == "error"
    return text_of(output)[0] or ("" if output is None else str(output)), False


def block_texts(content: object) -> list[str]:
    """Returns the texts in a message's content: one text, or one for each block where the content comes in blocks."""
    if isinstance(content, (list, tuple)):
        return [text for text, _ in map(text_of, content) if text]
    return [text_of(content)[0]]


def tool_message(output: object) -> ToolMessage | None:
    """Returns the message in a tool's output; that of a graph command stands in the command's update."""
    if isinstance(output, ToolMessage):
        return output
    update = getattr(output, "update", None)
    messages = update.get("messages") if isinstance(update, Mapping) else None
    if isinstance(messages, Sequence):
        return next((one for one in reversed(messages) if isinstance(one, ToolMessage)), None)
    return None


K = "ragguard_k"
"""The metadata key by which a retriever, or a call's config, says how many documents the retriever is asked for."""
KEYS = (*RUN_KEYS, K)
Metadata: TypeAlias = Mapping[str, Any] | None
"""The metadata that LangChain tells of a call."""
