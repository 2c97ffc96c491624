"""Says what an operation that Haystack traces is: a retrieval, a call of a model, or neither."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from haystack import Document
from haystack.dataclasses import ChatMessage

from ragguard.capture.snapshot import passage
from ragguard.records import Passage

PIPELINE, AGENT = "haystack.pipeline.run", "haystack.agent.run"
COMPONENT, TOOL = "haystack.component.run", "haystack.agent.step.tool"
MODEL = "haystack.agent.step.llm"
_QUERIES = ("query", "queries", "question", "search_query")
_EMBEDDINGS = ("query_embedding", "query_sparse_embedding")
_QUESTIONS = (*_QUERIES, "text", "messages", "user_message")


def documents_in(values: object) -> list[Document] | None:
    """Returns the documents among the values of a component's inputs or outputs; None where no value is a list of
    documents."""
    if not isinstance(values, Mapping):
        return None
    lists = [value for value in values.values() if isinstance(value, list)]
    flat = [
        [inner for item in value for inner in (item if isinstance(item, list) else [item])] for value in lists
    ]
    with_documents = [items for items in flat if items and all(isinstance(item, Document) for item in items)]
    if not with_documents:
        return [] if isinstance(values.get("documents"), list) and not values["documents"] else None
    return [document for items in with_documents for document in items]


def passages_of(documents: Iterable[Document]) -> list[Passage]:
    """Returns a snapshot of documents, taken at once since the application may change them."""
    return [
        passage(document.content or "", document.id, document.score, document.meta) for document in documents
    ]


def retrieves(tags: Mapping[str, Any]) -> bool:
    """True for a component that gives documents, is given none, and is asked by a query, its embedding or filters; or
    is called a retriever. A converter or a splitter, which make documents of files or documents, is none."""
    inputs = _types(tags, "input")
    if not any("Document" in kind for kind in _types(tags, "output").values()):
        return False
    if any("Document" in kind for kind in inputs.values()):
        return False
    return str(tags.get("haystack.component.type", "")).endswith("Retriever") or any(
        name in inputs for name in (*_QUERIES, *_EMBEDDINGS)
    )


def senders(tags: Mapping[str, Any]) -> set[str]:
    """Returns the names of the components whose outputs a component is given."""
    sockets = tags.get("haystack.component.input_spec") or {}
    return {name for socket in sockets.values() for name in socket.get("senders") or ()}


def query_in(inputs: Mapping[str, Any]) -> str:
    """Returns the query that a retriever or a search tool is asked; '' where it is asked without words."""
    for name in _QUERIES:
        if value := inputs.get(name):
            return value if isinstance(value, str) else "; ".join(map(str, value))
    return ""


def embedding_in(inputs: Mapping[str, Any]) -> tuple[float, ...]:
    """Returns the beginning of the embedding that a retriever is asked by, or that an embedder gave; () without one."""
    for name in (*_EMBEDDINGS, "embedding"):
        if isinstance(value := inputs.get(name), list):
            return tuple(value[:8])
    return ()


def question_in(data: Mapping[str, Any]) -> str:
    """Returns the question of a pipeline or an agent: the first input that is called a query, a question or a text,
    else the last message of a user."""
    nested = [value for value in data.values() if isinstance(value, Mapping)]
    for name in _QUESTIONS:
        for inputs in (data, *nested):
            if text := _words(inputs.get(name)):
                return text
    return ""


def texts_in(content: object) -> list[str]:
    """Returns the texts in what a model or a tool is given, or what a model replies."""
    if isinstance(content, str):
        return [content]
    if isinstance(content, ChatMessage):
        return [*content.texts, *(str(result.result) for result in content.tool_call_results)]
    items = content.values() if isinstance(content, Mapping) else content if isinstance(content, list) else ()
    return [text for item in items for text in texts_in(item)]


def reply_in(outputs: object) -> str | None:
    """Returns the text of a model's last reply, or of an answer that a component built; None where there is none."""
    if not isinstance(outputs, Mapping):
        return None
    if answers := outputs.get("answers"):
        return getattr(answers[0], "data", None) if isinstance(answers, list) else None
    replies = outputs.get("replies")
    if not isinstance(replies, list) or not replies:
        return None
    return replies[-1] if isinstance(replies[-1], str) else getattr(replies[-1], "text", None)


def is_model(outputs: object) -> bool:
    """True for the outputs of a generator, which Haystack calls replies."""
    return isinstance(outputs, Mapping) and isinstance(outputs.get("replies"), list)


def _types(tags: Mapping[str, Any], side: str) -> dict[str, str]:
    sockets = tags.get(f"haystack.component.{side}_spec") or {}
    return {name: str(socket.get("type", "")) for name, socket in sockets.items()}


def _words(value: object) -> str:
    if isinstance(value, str):
        return value
    messages = value if isinstance(value, list) else [value]
    texts = [item.text for item in messages if isinstance(item, ChatMessage) and item.is_from("user")]
    return (texts[-1] or "") if texts else ""
