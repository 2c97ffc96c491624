"""Reads a span, in whichever convention it is written, as a record of what happened: a retrieval, a model call, …"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ragguard.capture.names import USER
from ragguard.capture.shapes import ModelContent, answer_in, content_in, messages_in, query_in, question_in
from ragguard.capture.snapshot import passage
from ragguard.capture.splitters import json_of, passages_in_text, search_results
from ragguard.records import Passage
from ragguard.traces.conventions import KINDS, NAMES, WRAPPED, Kind
from ragguard.traces.spans import TraceSpan
from ragguard.traces.texts import logged, parsed, said

MOST_DOCUMENTS = 1000
_RETRIEVES: tuple[Kind, ...] = ("retrieval", "rerank", "guard")
_INDEXED = re.compile(r"(.+?)\.(\d{1,6})(?:\.(.+))?")
_REQUEST = re.compile(r"(?:tool_calls\.)?(\d{1,6})\.(?:tool_call\.)?(?:function\.)?(id|arguments)")
_PARTS = {"tokens read": ("input", "input_tokens"), "tokens written": ("output", "output_tokens"),
          "cost": ("total", "total_cost")}  # fmt: skip
"""The names of numbers in the attributes that hold several as JSON."""


@dataclass(slots=True, eq=False)
class Record:
    """The content of a span, in whichever convention it is written, and its place in the tree of its trace."""

    span: TraceSpan
    kind: Kind | None = None
    """None for a span of no convention, such as one of an HTTP server."""
    convention: str = ""
    query: str = ""
    documents: list[Passage] | None = None
    """The documents that were found, or kept by a reranker or a guard; None where the span holds no documents."""
    given: list[Passage] | None = None
    """The documents that a reranker or a guard was given."""
    k: int | None = None
    """The K that the span names; None where it names none, or fewer places than there are documents."""
    question: str = ""
    answer: str = ""
    asked: list[str] = field(default_factory=list)
    """The texts of the user in the input of a task."""
    prompt: ModelContent | None = None
    """The content that a model was given; None where the span holds none."""
    reply: ModelContent | None = None
    """The content of a model's reply; None where the span holds none."""
    call: dict[str, Any] = field(default_factory=dict)
    """The cost of a call of a model: its name, tokens, money and seconds, as far as these are known."""
    tool: str = ""
    session: str = ""
    name: str = ""
    """The name of the agent, where the span has one beside its own name."""
    parent: Record | None = None
    children: list[Record] = field(default_factory=list)
    inside_weight: int = 0
    """The greatest weight of a record inside it."""

    @property
    def weight(self) -> int:
        """How surely the span is a retrieval: 3 for the span of one, 2 for a task and 1 for a tool that gave documents,
        0 for anything else."""
        if self.kind == "retrieval":
            return 3 if self.documents is not None or self.span.failed else 0
        return {"task": 2, "tool": 1}.get(self.kind or "", 0) if self.documents is not None else 0

    @property
    def retrieves(self) -> bool:
        """True for a retrieval inside which nothing is more surely one."""
        return 0 < self.weight >= self.inside_weight

    @property
    def tool_call(self) -> Record | None:
        """The call of a tool that the record is, or stands in; None where there is none."""
        return next((one for one in (self, *self.around()) if one.kind == "tool"), None)

    def around(self) -> Iterator[Record]:
        """Yields the records around this one, the innermost first."""
        record = self.parent
        while record is not None:
            yield record
            record = record.parent

    def inside(self) -> Iterator[Record]:
        """Yields this record and all inside it, each before its children."""
        waiting = [self]
        while waiting:
            yield (record := waiting.pop())
            waiting += reversed(record.children)


def read_span(span: TraceSpan, tools: Collection[str] = ()) -> Record:
    """Returns what a span says; the results of `tools` are documents, whatever their form. Never raises for what stands
    in a span."""
    record, content = Record(span), _SpanContent(span)
    record.convention, record.kind = content.convention, content.kind
    record.session = str(content.first("session") or "")
    record.name = str(content.first("name") or "")
    if record.kind is None or record.kind == "other":
        return record
    if record.kind == "model":
        record.prompt, record.question = content.conversation(
            "prompt of a model", "input", "user", lambda value: question_in(value, said)
        )
        record.reply, record.answer = content.conversation("reply of a model", "output", "assistant", _answer)
        requests = json_of(content.first("requests of a model"))
        if isinstance(requests, list):
            asked = content_in({"role": "assistant", "content": "", "tool_calls": requests})
            known = record.reply or ModelContent([], [], [])
            record.reply = known._replace(calls=[*known.calls, *asked.calls])
        record.call = content.call()
        return record
    given, gave = content.first("input"), content.first("output")
    if record.kind == "task" and given is None:
        given = _next_input(gave)
    record.question, record.answer = question_in(given, said), _answer(gave)
    if record.kind == "tool":
        record.tool = str(content.first("tool") or span.name)
    if record.kind == "task":
        record.asked = [one.text for one in messages_in(given, logged) if one.role in USER]
    if record.kind in ("agent", "chain"):
        return record
    record.query = question_in(content.first("query"), said) or record.question
    if (
        record.kind == "tool"
        and not record.query
        and isinstance(arguments := parsed(content.first("query")), Mapping)
    ):
        record.query = query_in(arguments)
    declared = record.kind in _RETRIEVES
    if declared:
        record.given = content.documents("documents before a reranker or a guard", declared=False)
        record.documents = content.documents("documents", declared=True)
    is_named = record.kind == "tool" and record.tool in tools
    by_shape = passages_in_text(_as_text(gave)) if is_named else search_results(gave, declared=declared)
    if record.documents is None or _says_more(by_shape, record.documents):
        record.documents = by_shape
    if record.kind == "task" and record.documents is not None:
        # A task whose output is documents is a retrieval, or, where its input held documents as well, a reranker.
        record.given = search_results(given)
        record.kind = "task" if record.given is None else "rerank"
    top_k = content.first("top k")
    if type(top_k) is int and top_k >= max(1, len(record.documents or ())):
        record.k = top_k
    return record


def _next_input(output: Any) -> Any:
    """Returns the input that a step of a workflow prepares for the next one, as LlamaIndex's agents do, whose spans
    have no input; None without one."""
    data = parsed(output)
    return data.get("input") if isinstance(data, Mapping) else None


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, default=str)


def kind_of(span: TraceSpan) -> str:
    """Returns the kind of a span in words, with the convention that says it."""
    content = _SpanContent(span)
    if content.kind is None:
        return "of no known convention"
    name = f" {span.name}" if content.kind == "tool" and span.name else ""
    return f"{content.kind}{name} of {content.convention}"


def _says_more(output: list[Passage] | None, documents: list[Passage]) -> bool:
    """True where the output has the same texts with ids, which some instrumentations leave out of the documents."""
    texts = [one.text for one in documents]
    return (
        output is not None and not any(one.id for one in documents) and texts == [one.text for one in output]
    )


class _SpanContent:
    """The attributes of a span and of its events, looked up under the names of every convention.

    A list that is written as indexed attributes, or as one event for each item, is a tuple of its items here.
    """

    def __init__(self, span: TraceSpan) -> None:
        self._span = span
        self._own = dict(span.attributes)
        items: dict[str, dict[int, dict[str, Any]]] = {}
        for name, value in span.attributes.items():
            if found := _INDEXED.fullmatch(name):
                within = found[3] or ""
                items.setdefault(found[1], {}).setdefault(int(found[2]), {})[
                    within.partition(".")[2] or within
                ] = value
        for number, event in enumerate(span.events):
            fields = {name.removeprefix(f"{event.name}."): one for name, one in event.attributes.items()}
            items.setdefault(event.name, {})[number] = fields
        for name, listed in items.items():
            self._own[name] = tuple(listed[number] for number in sorted(listed)[:MOST_DOCUMENTS])
        self._places: list[Mapping[str, Any]] = [self._own, *(event.attributes for event in span.events)]
        self.convention, self.kind = self._kind()

    def _kind(self) -> tuple[str, Kind | None]:
        for (convention, name), kinds in KINDS.items():
            value = self._own.get(name)
            kind = None if value is None else kinds.get(str(value).strip('"').lower(), kinds.get("*"))
            if kind is not None:
                return convention, kind
        listed = any(isinstance(self._own.get(name), tuple) for name in _names("documents"))
        return "", "retrieval" if listed else None

    def values(self, what: str) -> Iterator[Any]:
        """Yields the values that hold something by any convention, and are not empty: those of the span, then those of
        its events."""
        for place in self._places:
            for name in _names(what):
                if (value := place.get(name)) not in (None, "", ()):
                    yield value

    def first(self, what: str) -> Any:
        """Returns the first of these values, taken out of an entry in which a convention wraps it; None without one."""
        return next(map(_unpacked, self.values(what)), None)

    def documents(self, what: str, *, declared: bool) -> list[Passage] | None:
        """Returns the documents in the first value that holds some; None where there is none."""
        for value in self.values(what):
            if isinstance(value, tuple):
                return [_passage(item) for item in value]
            value = _unpacked(value)
            found = search_results(value, declared=declared)
            if found is None and declared:
                found = _bare_ids(value)
            if found is not None:
                return found[:MOST_DOCUMENTS]
        return None

    def conversation(
        self, what: str, whole: str, role: str, find: Callable[[Any], str]
    ) -> tuple[ModelContent | None, str]:
        """Returns the content that a model was given or gave, and what `find` finds in it; `role` is that of messages
        that name none."""
        value = next(self.values(what), None) or self.first(whole)
        if isinstance(value, tuple):
            value = [
                {
                    "role": item.get("role", role),
                    "content": _text_of(item),
                    "tool_calls": _calls_of(item),
                    "tool_call_id": item.get("tool_call_id"),
                }
                for item in value
            ]
        return (None, "") if value is None else (content_in(value, logged), find(value))

    def call(self) -> dict[str, Any]:
        """Returns what a call of a model took."""
        span = self._span
        call: dict[str, Any] = {"model": str(self.first("model") or span.name)}
        for what, names in _PARTS.items():
            value = parsed(next(self.values(what), None))
            if isinstance(value, Mapping):
                value = next((value[name] for name in names if name in value), None)
            if isinstance(value, int | float) and value >= 0:
                call[what.replace(" ", "_")] = value
        seconds = max(0, span.ended_ns - span.started_ns) / 1e9
        return call | {"started_ns": span.started_ns, "seconds": seconds}


def _answer(value: Any) -> str:
    return answer_in(value, said).text or ""


def _names(what: str) -> Iterator[str]:
    return (name.partition(".{i}")[0] for name in NAMES[what])


def _unpacked(value: Any) -> Any:
    data = parsed(value)
    if not isinstance(data, Mapping):
        return value
    return next((data[name] for name in WRAPPED if name in data), value)


def _bare_ids(value: Any) -> list[Passage] | None:
    """Returns the documents of GenAI's conventions, which need no text: `[{"id": …, "score": …}]`."""
    data = parsed(value)
    if not isinstance(data, list) or not all(isinstance(one, Mapping) and "id" in one for one in data):
        return None
    return [_passage(one) for one in data]


def _passage(item: Mapping[str, Any]) -> Passage:
    content = next((item[name] for name in ("content", "document", "entity") if name in item), None)
    metadata = item.get("metadata")
    metadata = json_of(metadata) if isinstance(metadata, str) else metadata
    known = metadata if isinstance(metadata, Mapping) else None
    return passage(content, item.get("id"), item.get("score"), known)


def _calls_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the requests for tools in an indexed message."""
    calls: dict[str, dict[str, Any]] = {}
    for name, value in message.items():
        if found := _REQUEST.fullmatch(name):
            calls.setdefault(found[1], {})[found[2]] = value
    return list(calls.values())


def _text_of(message: Mapping[str, Any]) -> str:
    """Returns the text of an indexed message, whose content may be one text or several blocks."""
    texts = [message.get("content"), message.get("text")]
    texts += [value for name, value in message.items() if name.endswith("message_content.text")]
    return "\n".join(str(one) for one in texts if one)
