"""Finds questions, answers and messages in the inputs and outputs of spans, as frameworks log them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ragguard.capture.snapshot import ANSWER_NAMES
from ragguard.capture.splitters import OBJECT, json_of, unwrapped

QUESTION_NAMES = (
    "question", "query", "query_str", "str_or_query_bundle", "query_bundle", "user_msg", "input", "inputs", "message",
    "user_input", "search_query", "q", "prompt", "text", "kwargs", "args", "arguments",
)  # fmt: skip
"""Names under which pipelines, retrievers and tools take a question, the most usual ones first."""
USER, _ASSISTANT = ("user", "human"), ("assistant", "ai", "model")
_ANSWERS = (*ANSWER_NAMES, "outputs", "generations", "message")
_MESSAGES = ("messages", "message", "input_messages", "chat_history", "input")
_DEEPEST = 8
_CHAT_MESSAGE = re.compile(
    r"ChatMessage\(role=<MessageRole\.\w+: '(\w+)'>.*?(?=ChatMessage\(role=|\Z)", re.DOTALL
)
_TEXT_BLOCK = re.compile(r"text=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")", re.DOTALL)
_LONGEST_REPR = 100_000


class ChatText(NamedTuple):
    """A message of a conversation."""

    role: str
    text: str


def parsed(value: Any) -> Any:
    """Returns what a text holds in JSON or as a mapping of Python's; anything else as it is."""
    if not isinstance(value, str):
        return value
    if value.startswith(("{'", "{}")) and len(value) < _LONGEST_REPR:
        return _literal(value, value)
    return json_of(value)


def question_in(value: Any) -> str:
    """Returns the question in the input of a pipeline, a retriever or a tool; '' where none is found."""
    return _find(value, USER, QUESTION_NAMES, _DEEPEST)


def answer_in(value: Any) -> str:
    """Returns the answer in the output of a pipeline or a model; '' where none is found."""
    return _find(value, _ASSISTANT, _ANSWERS, _DEEPEST)


def _find(value: Any, roles: tuple[str, ...], names: tuple[str, ...], depth: int) -> str:
    """Returns the text that a value is; of messages the last one by these roles; else what is found under the first of
    the names, or in the one text there is."""
    value = unwrapped(parsed(value))
    if isinstance(value, str):
        return "" if OBJECT.match(value) else value
    if not depth:
        return ""
    if messages := messages_in(value):
        return next((one.text for one in reversed(messages) if one.role in roles), "")
    if isinstance(value, list):
        return _find(value[0], roles, names, depth - 1) if len(value) == 1 else ""
    if not isinstance(value, Mapping):
        return ""
    for name in names:
        if value.get(name) and (found := _find(value[name], roles, names, depth - 1)):
            return found
    texts = [one for one in value.values() if isinstance(one, str)]
    return _find(texts[0], roles, names, depth - 1) if len(texts) == len(value) == 1 else ""


def messages_in(value: Any) -> list[ChatText]:
    """Returns the messages in the input or the output of a model or an agent; an empty list where there are none."""
    return list(_messages(parsed(value), _DEEPEST))


def texts_in(value: Any) -> list[str]:
    """Returns the texts of the messages in a value; where there are none, all texts in it."""
    messages = messages_in(value)
    return [one.text for one in messages] if messages else list(_strings(parsed(value), _DEEPEST))


def _strings(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth and (text := text_in(value)):
        yield text
    elif depth and isinstance(value, list | Mapping):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(inner, depth - 1)


def text_in(content: Any) -> str:
    """Returns the text in the content of a message: a text, or blocks of which some are texts."""
    content = unwrapped(content)
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(text_in, content)))
    if isinstance(content, Mapping):
        for name in ("text", "content", "response", "parts", "blocks", "contents"):
            if content.get(name):
                return text_in(content[name])
    return ""


def _messages(value: Any, depth: int) -> Iterator[ChatText]:
    value = unwrapped(value)
    if not depth:
        return
    if isinstance(value, str):
        for logged in _CHAT_MESSAGE.finditer(value):
            blocks = _TEXT_BLOCK.findall(logged[0])
            yield ChatText(
                logged[1].lower(), "\n".join(str(_literal(block, block[1:-1])) for block in blocks)
            )
    elif isinstance(value, list):
        if (
            len(value) == 2
            and all(isinstance(one, str) for one in value)
            and value[0] in (*USER, *_ASSISTANT)
        ):
            yield ChatText(value[0], value[1])  # a pair, as LangChain takes one
            return
        for item in value:
            yield from _messages(item, depth - 1)
    elif isinstance(value, Mapping):
        role = value.get("role") or (value.get("type") if "content" in value else None)
        if isinstance(role, str) and role not in ("text", "Document"):
            yield ChatText(role.lower(), text_in(value))
            return
        for name in (*_MESSAGES, "generations", "output"):
            held = value.get(name)
            if isinstance(held, (list, Mapping)) and (found := list(_messages(held, depth - 1))):
                yield from found
                return


def _literal(text: str, otherwise: str) -> Any:
    """Returns the value that a text is in Python."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return otherwise
