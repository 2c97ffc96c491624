"""Reads LangChain's inputs and outputs: the question, the answer, the documents and their texts, a tool's query.

Pipelines pass on messages, dictionaries, tuples, states and plain texts. Each function here takes any of them and
returns the most likely reading, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from ragguard.capture.declarations import fields_of
from ragguard.capture.pipeline_run import RUN_KEYS
from ragguard.capture.snapshot import ANSWER_NAMES, OwnPassages, passage, passage_of, passages_of, text_of
from ragguard.capture.snapshot import answer_of as json_answer
from ragguard.records import Passage

_QUESTIONS = ("question", "query", "input", "user_input", "prompt", "text")
_STRUCTURED = "structured_response"
"""The key of the state under which `create_agent(response_format=…)` puts its answer."""
_HUMAN = ("human", "user")
_MODEL = ("ai", "assistant", "AIMessageChunk")


Taken: TypeAlias = list[Any]
"""A snapshot of a retriever's documents: text, id and metadata of each, one after the other; or passages where there
were no proper documents."""


class Answer(NamedTuple):
    """The answer of a pipeline; None where it is no text."""

    text: str | None = None
    calls_tools: bool = False
    """True where the last message is a request for tools: the agent was stopped before its answer."""


NOTHING = Answer()


def question_of(inputs: object) -> str:
    """Returns the question in a pipeline's input: the last human message, or the field that holds it."""
    if isinstance(inputs, str):
        return inputs
    if isinstance(inputs, BaseMessage):
        return text_of(inputs.content)[0]
    if isinstance(inputs, Sequence):
        return _last_human(inputs)
    fields = fields_of(inputs)  # of a state that is a dataclass or a model, too
    if messages := fields.get("messages"):
        return _last_human(messages)
    for key in _QUESTIONS:
        if key in fields:
            return question_of(fields[key])
    return _only_text(fields)


def _only_text(fields: Mapping[str, Any]) -> str:
    texts = [value for value in fields.values() if isinstance(value, str)]
    return texts[0] if len(texts) == 1 else ""


def answer_of(outputs: object) -> Answer:
    """Returns the answer in a pipeline's output.

    The answer is a structured response, the model's last message after the last human one, or the field that usually
    holds it.
    """
    if isinstance(outputs, str):
        return Answer(outputs or None)
    if isinstance(outputs, BaseMessage):
        calls = isinstance(outputs, AIMessage) and bool(outputs.tool_calls)
        return Answer(text_of(outputs.content)[0] or None, calls)
    if isinstance(outputs, (list, tuple)):
        return _last_answer(outputs)
    fields, last = fields_of(outputs), Answer()
    if (structured := fields.get(_STRUCTURED)) is not None:
        return _structured(structured)
    if messages := fields.get("messages"):
        last = _last_answer(messages)
        if last.text or last.calls_tools:
            return last
    for key in ANSWER_NAMES:
        if value := fields.get(key):
            return answer_of(value)
    return last


def _structured(response: object) -> Answer:
    """Returns an answer that has a form which the application chose: the field that usually holds the answer, else
    all of it as JSON."""
    fields = fields_of(response)
    named = (fields[key] for key in ANSWER_NAMES if isinstance(fields.get(key), str) and fields[key])
    return Answer(next(named, None) or json_answer(dict(fields) or response)[0])


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


def texts_in(content: object) -> list[str]:
    """Returns the texts in what a model is given or replies: prompts, messages, generations, and lists of these."""
    if isinstance(content, str):
        return [content]
    if isinstance(content, (list, tuple)):
        return [text for one in content for text in texts_in(one)]
    if isinstance(content, BaseMessage):
        return [text_of(content.content)[0]]
    if (message := getattr(content, "message", None)) is not None:
        return texts_in(message)
    text = getattr(content, "text", None)
    return [text] if isinstance(text, str) else []


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


def tool_query(inputs: object, text: str) -> str:
    """Returns the query of a tool call, as the agent wrote it."""
    if isinstance(inputs, Mapping):
        for key in _QUESTIONS:
            if isinstance(inputs.get(key), str):
                return str(inputs[key])
        if only := _only_text(inputs):
            return only
    return text if isinstance(text, str) else ""


def _last_human(messages: object) -> str:
    if isinstance(messages, (str, BaseMessage)):
        return question_of(messages)
    if isinstance(messages, Sequence):
        for message in reversed(messages):
            role, content = _role_and_content(message)
            if role in _HUMAN:
                return text_of(content)[0]
    return ""


def _last_answer(messages: object) -> Answer:
    if not isinstance(messages, (list, tuple)):
        return answer_of(messages)
    for message in reversed(messages):
        role, content = _role_and_content(message)
        if role in _MODEL:
            if isinstance(message, BaseMessage):
                return answer_of(message)
            return Answer(text_of(content)[0] or None)
        if role in _HUMAN:
            break
    return Answer()


def _role_and_content(message: object) -> tuple[str, object]:
    if isinstance(message, BaseMessage):
        return message.type, message.content
    if isinstance(message, str):
        return "human", message
    if isinstance(message, Mapping):
        return str(message.get("role", message.get("type", ""))), message.get("content")
    if isinstance(message, (tuple, list)) and len(message) == 2:
        return str(message[0]), message[1]
    return "", None


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
