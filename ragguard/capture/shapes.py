"""Finds the question, the answer, the messages and the texts in the inputs and outputs of pipelines: in texts,
messages, mappings, states, events, responses, as objects of a framework or as a trace has logged them.

    question_in({"messages": [HumanMessage("Who founded it?")]})   # "Who founded it?"
    answer_in(AgentOutput(...)).text
    content_in(prompts).texts
    query_in({"search_query": "firm in Oslo", "limit": 3})

Every integration and the reader of traces ask here. No framework is imported: objects are known by their attributes. A
`read` is applied to each value that is looked at: traces parse texts that are JSON by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from ragguard.capture.names import ANSWERS, ASSISTANT, BLOCKS, CONVERSATIONS, MESSAGES, QUESTIONS, USER
from ragguard.capture.snapshot import answer_of, is_document
from ragguard.capture.tool_calls import ToolCall, calls_of, json_text, results_of

DEEPEST = 8
"""The most layers of mappings, lists and messages that are looked through."""
_ROLES = frozenset((*USER, *ASSISTANT, "system", "developer", "tool", "function"))
_RAW = "raw"
_THOUGHTS = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL)
_END_OF_THOUGHTS = re.compile(r"</think(?:ing)?>")
_STRUCTURED = "structured_response"
"""The name under which agents give an answer whose form the application has chosen."""
_SEVERAL = {"replies": -1, "generations": -1, "answers": 0}
"""The names under which several answers stand, and which of them counts."""
_PLAIN = (str, int, float)
Read: TypeAlias = Callable[[Any], Any]


class ChatMessage(NamedTuple):
    """A message of a conversation."""

    role: str
    text: str
    source: Any
    """The message as it came."""


class Answer(NamedTuple):
    """The answer of a pipeline; None where it is no text."""

    text: str | None = None
    calls_tools: bool = False
    """True where the last message is a request for tools: the agent was stopped before its answer."""
    names: tuple[str, ...] = ()
    """The names in an output that has no answer."""


class ModelContent(NamedTuple):
    """The content of a model's input, or of its reply."""

    texts: list[str]
    calls: list[ToolCall]
    """The requests for tools."""
    results: list[str]
    """The ids of the requests whose results are in the content."""


NOTHING = Answer()


def as_it_is(value: Any) -> Any:
    """Returns the value."""
    return value


def fields_of(value: object) -> Mapping[str, Any]:
    """Returns the named parts of a value: the items of a mapping, or of the mappings in a list, of which the last ones
    count; the attributes of an object."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, (list, tuple)):
        return {name: part for item in value if isinstance(item, Mapping) for name, part in item.items()}
    fields = dict(getattr(value, "__dict__", {}) or {})
    if hasattr(value, "_data") and callable(to_dict := getattr(value, "to_dict", None)):
        fields |= to_dict()  # an event of LlamaIndex keeps values without a field in a mapping
    return fields


def unwrapped(value: Any) -> Any:
    """Returns the fields of an object that LangChain has serialised; any other value as it is."""
    if isinstance(value, Mapping):
        if isinstance(value.get("kwargs"), Mapping) and "lc" in value:
            return value["kwargs"]
        if isinstance(value.get("data"), Mapping) and isinstance(value.get("type"), str):
            return value["data"]
    return value


def content_text(content: Any) -> str:
    """Returns the text in the content of a message: a text, or blocks of which some are texts."""
    content = unwrapped(content)
    if isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)):
        return "\n".join(filter(None, map(content_text, content)))
    if isinstance(content, Mapping):
        for name in BLOCKS:
            held = content.get(name)
            if text := content_text(held):
                return text
            if held and name in ("response", "result") and isinstance(held, (Mapping, list)):
                return json_text(held)  # a tool's result as data
        return ""
    own = getattr(content, "text", None)
    return own if isinstance(own, str) else ""


def message_of(item: Any) -> ChatMessage | None:
    """Returns the message that an item is: a framework's object, a mapping, or a pair of a role and a content."""
    item = unwrapped(item)
    if isinstance(item, Mapping):
        role = item.get("role") or (item.get("type") if "content" in item else None)
        if isinstance(role, str) and role not in ("text", "Document"):
            return ChatMessage(role if role in ASSISTANT else role.lower(), content_text(item), item)
    elif isinstance(item, (list, tuple)):
        if len(item) == 2 and isinstance(item[0], str) and item[0] in _ROLES:
            return ChatMessage(item[0], content_text(item[1]), item)
    elif not isinstance(item, str) and item is not None:
        role, content = getattr(item, "role", None), getattr(item, "content", None)
        if role is None:  # LangChain's
            role = getattr(item, "type", None) if hasattr(item, "content") else None
        role = getattr(role, "value", role)
        if isinstance(role, str):
            if content is None:  # LlamaIndex's, of whose blocks none is a text; Haystack's
                content = getattr(item, "texts", None) or [
                    str(one.result) for one in getattr(item, "tool_call_results", None) or ()
                ]
            return ChatMessage(role, content_text(content), item)
    return None


def messages_in(value: Any, read: Read = as_it_is, depth: int = DEEPEST) -> list[ChatMessage]:
    """Returns the messages in the input or the output of a model or an agent; an empty list where there are none."""
    return list(_messages(value, read, depth))


def _messages(value: Any, read: Read, depth: int) -> Iterator[ChatMessage]:
    value = unwrapped(read(value))
    if not depth or isinstance(value, str):
        return
    if (message := message_of(value)) is not None:
        yield message
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _messages(item, read, depth - 1)
    elif isinstance(value, Mapping):
        for name in MESSAGES:
            held = value.get(name)
            if held is None or isinstance(held, str):
                continue
            if found := list(_messages(held, read, depth - 1)):
                yield from found
                return
    elif (message := message_of(getattr(value, "message", None))) is not None:  # a reply around its message
        yield message


def question_in(value: Any, read: Read = as_it_is, depth: int = DEEPEST) -> str:
    """Returns the question in the input of a pipeline, a retriever or a tool; '' where none is found.

    It is a text, the last message of a user, what stands under the first of the usual names, there or one mapping
    deeper, or the only text.
    """
    value = unwrapped(read(value))
    if isinstance(value, str):
        return value
    if not depth or value is None:
        return ""
    if isinstance(asked := getattr(value, "query_str", None), str):
        return asked
    if (message := message_of(value)) is not None:
        return message.text if message.role not in ASSISTANT else ""
    if isinstance(value, (list, tuple)):
        return _question_of_list(value, read, depth)
    fields = fields_of(value)
    for name in QUESTIONS:
        if fields.get(name) and (question := question_in(fields[name], read, depth - 1)):
            return question
    inner = [one for one in fields.values() if isinstance(one, Mapping)]  # as of a pipeline's components
    for name in QUESTIONS:
        for one in inner:
            if one.get(name) and (question := question_in(one[name], read, depth - 1)):
                return question
    return _only_text(fields, read)


def _question_of_list(items: list[Any] | tuple[Any, ...], read: Read, depth: int) -> str:
    if items and all(isinstance(item, str) for item in items):
        return "; ".join(items) if len(items) > 1 else question_in(items[0], read, depth - 1)
    if messages := messages_in(items, read, depth):
        return next((one.text for one in reversed(messages) if one.role in USER), "")
    return question_in(items[0], read, depth - 1) if len(items) == 1 else ""


def _only_text(fields: Mapping[str, Any], read: Read = as_it_is) -> str:
    texts = [read(value) for value in fields.values() if isinstance(value, str)]
    return texts[0] if len(texts) == 1 and isinstance(texts[0], str) else ""


def query_in(arguments: Mapping[str, Any], *, whole: bool = True) -> str:
    """Returns the query that a retriever or a tool is asked: its argument of a usual name, or its only text; with
    `whole` all of its arguments where there is none."""
    for name in QUESTIONS:
        value = arguments.get(name)
        if name in CONVERSATIONS or not isinstance(value, (*_PLAIN, list, tuple)):
            continue
        if query := str(value) if isinstance(value, _PLAIN) else question_in(value):
            return query
    if (query := _only_text(arguments)) or not whole:
        return query
    if len(arguments) == 1:
        return str(next(iter(arguments.values())))
    return ", ".join(f"{name}: {value}" for name, value in arguments.items())


def answer_in(value: Any, read: Read = as_it_is, *, whole: bool = False, depth: int = DEEPEST) -> Answer:
    """Returns the answer in the output of a pipeline, an agent or a model.

    It is a text, the last message of a model after the last one of a user, or what stands under the first of the usual
    names. With `whole` an output without these is an answer, too: its only text, else its JSON.
    """
    value = unwrapped(read(value))
    if isinstance(value, str):
        return Answer(value or None)
    if not depth or value is None or is_document(value):
        return NOTHING
    if (message := message_of(value)) is not None:
        return Answer(message.text or None, bool(calls_of(message.source)))
    if isinstance(value, (list, tuple)):
        return _answer_of_list(value, read, whole, depth)
    fields = fields_of(value)
    structured = fields.get(_STRUCTURED)
    if "raw" in fields and "parsing_error" in fields:  # of LangChain's `include_raw=True`
        structured = fields.get("parsed")
        fields = {_RAW: fields["raw"]}
    if structured is not None:
        named = (one for name in ANSWERS if isinstance(one := fields_of(structured).get(name), str) and one)
        return Answer(next(named, None) or _json_of(structured))
    for name in (_RAW, *ANSWERS):
        if not (held := fields.get(name)):
            continue
        if isinstance(held, list) and name in _SEVERAL:
            held = held[_SEVERAL[name]]
        answer = answer_in(held, read, whole=whole and name != "messages", depth=depth - 1)
        if answer.text or answer.calls_tools:
            return answer
    if not whole:
        return Answer(names=tuple(str(name) for name in fields if not str(name).startswith("_")))
    plain = [one for one in fields.values() if isinstance(one, _PLAIN)]
    if len(plain) == 1 and isinstance(plain[0], str):
        return Answer(plain[0])
    return Answer(_json_of(value))


def _json_of(value: object) -> str | None:
    return answer_of(dict(fields_of(value)) or value)[0] or None


def _answer_of_list(
    items: list[Any] | tuple[Any, ...], read: Read, whole: bool, depth: int
) -> Answer:  # fmt: skip
    if items and is_document(items[0]):
        return NOTHING
    if isinstance(items, tuple) and not whole and len(items) > 1 and message_of(items) is None:
        answers = (answer_in(item, read, depth=depth - 1) for item in items)
        return next((answer for answer in answers if answer.text), NOTHING)
    if messages := messages_in(items, read, depth):
        if messages[-1].role == "tool":  # of a tool whose result the agent returns as it is
            return Answer(messages[-1].text or None)
        for message in reversed(messages):
            if message.role in ASSISTANT:
                return Answer(message.text or None, bool(calls_of(message.source)))
            if message.role in USER:
                break
        return NOTHING
    if len(items) == 1:
        return answer_in(items[0], read, whole=whole, depth=depth - 1)
    return Answer(answer_of(items)[0] or None) if whole else NOTHING


def spoken(text: str | None) -> str | None:
    """Returns an answer without the thoughts that a model has written down before it. Where the prompt has begun them,
    only their end stands in the reply."""
    if text is None or ("<think" not in text and "</think" not in text):
        return text
    return _END_OF_THOUGHTS.split(_THOUGHTS.sub("", text))[-1].strip() or None


def content_in(value: Any, read: Read = as_it_is) -> ModelContent:
    """Returns what is in a model's input or reply: of messages their texts, their requests for tools and the results;
    where there are no messages, all texts."""
    content = ModelContent([], [], [])
    _collect(value, read, content, DEEPEST)
    return content


def _collect(value: Any, read: Read, content: ModelContent, depth: int) -> None:
    value = unwrapped(read(value))
    if isinstance(value, str):
        content.texts.append(value)
    elif not depth or value is None:
        return
    elif (message := message_of(value)) is not None:
        content.texts.append(message.text)
        content.calls.extend(calls_of(message.source))
        content.results.extend(results_of(message.source))
    elif isinstance(value, Mapping):
        if messages := messages_in(value, read, depth):
            for one in messages:
                _collect(one.source, as_it_is, content, depth - 1)
        elif text := content_text(value):
            content.texts.append(text)
        else:
            for one in value.values():
                _collect(one, read, content, depth - 1)
    elif isinstance(value, (list, tuple)):
        for one in value:
            _collect(one, read, content, depth - 1)
    elif (held := getattr(value, "message", None)) is not None:
        _collect(held, read, content, depth - 1)
    elif text := content_text(value):
        content.texts.append(text)
