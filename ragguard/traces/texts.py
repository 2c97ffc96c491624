"""Finds questions, answers and messages in the inputs and outputs of spans, as frameworks log them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ragguard.capture.shapes import ANSWER_NAMES
from ragguard.capture.splitters import OBJECT, json_of, unwrapped

QUESTION_NAMES = (
    "question", "query", "query_str", "str_or_query_bundle", "query_bundle", "user_msg", "input", "inputs", "message",
    "user_input", "search_query", "q", "prompt", "text", "kwargs", "args", "arguments",
)  # fmt: skip
"""Names under which pipelines, retrievers and tools take a question, the most usual ones first."""
USER, _ASSISTANT = ("user", "human"), ("assistant", "ai", "model")
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
        try:
            return ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return value
    return json_of(value)


def question_in(value: Any, depth: int = _DEEPEST) -> str:
    """Returns the question in the input of a pipeline, a retriever or a tool; '' where none is found."""
    value = unwrapped(parsed(value))
    if isinstance(value, str):
        return "" if OBJECT.match(value) else value
    if not depth:
        return ""
    for message in reversed(messages_in(value)):
        if message.role in USER and message.text.strip():
            return message.text
    if isinstance(value, list):
        return question_in(value[0], depth - 1) if len(value) == 1 else ""
    return _under(QUESTION_NAMES, value, depth, question_in)


def answer_in(value: Any, depth: int = _DEEPEST) -> str:
    """Returns the answer in the output of a pipeline or a model; '' where none is found."""
    value = unwrapped(parsed(value))
    if isinstance(value, str):
        return "" if OBJECT.match(value) else value
    if not depth:
        return ""
    messages = messages_in(value)
    for message in reversed(messages):
        if message.role in _ASSISTANT:
            return message.text
    if messages or isinstance(value, list):
        return answer_in(value[0], depth - 1) if isinstance(value, list) and len(value) == 1 else ""
    return _under((*ANSWER_NAMES, "outputs", "generations", "message"), value, depth, answer_in)


def messages_in(value: Any) -> list[ChatText]:
    """Returns the messages in the input or the output of a model or an agent; an empty list where there are none."""
    return list(_messages(parsed(value), _DEEPEST))


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
            yield ChatText(logged[1].lower(), "\n".join(map(_literal, blocks)))
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


def _under(names: tuple[str, ...], value: Any, depth: int, find: Any) -> str:
    """Returns what is found under the first of the names; where there are none of them, in the one text there is."""
    if not isinstance(value, Mapping):
        return ""
    for name in names:
        if value.get(name) and (found := find(value[name], depth - 1)):
            return str(found)
    texts = [one for one in value.values() if isinstance(one, str)]
    return str(find(texts[0], depth - 1)) if len(texts) == len(value) == 1 else ""


def _literal(text: str) -> str:
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text[1:-1]
