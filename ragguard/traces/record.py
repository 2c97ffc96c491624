"""Reads a span, in whichever convention it is written, as a record of what happened: a retrieval, a model call, …"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ragguard.capture.snapshot import passage
from ragguard.capture.splitters import json_of, search_results
from ragguard.records import Passage
from ragguard.traces.conventions import CONVENTIONS, Convention, Kind
from ragguard.traces.texts import USER, answer_in, messages_in, parsed, question_in, text_in
from ragguard.traces.trace_spans import TraceSpan

EVALUATION = "gen_ai.evaluation.result"
"""The event in which OpenTelemetry's conventions report an evaluation."""
MOST_DOCUMENTS = 1000
_REFERENCES = "ragguard.run.references"
"""Written by a RagGuard that only captures and sends (`engine=None`)."""
_WRAPPED = tuple(name for convention in CONVENTIONS for name in convention.wrapped)
"""The names of entries in which a convention wraps inputs and outputs, also those under another convention's names."""
_RETRIEVES: tuple[Kind, ...] = ("retrieval", "rerank", "guard")


@dataclass(slots=True)
class Record:
    """The content of a span, in whichever convention it is written."""

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
    question: str = ""
    answer: str = ""
    asked: list[str] = field(default_factory=list)
    """The texts that a model was given, or of a task those of the user in its input."""
    replied: list[str] = field(default_factory=list)
    """The texts of a model's reply."""
    call: dict[str, Any] = field(default_factory=dict)
    """The cost of a call of a model: its name, tokens, money and seconds, as far as these are known."""
    tool: str = ""
    session: str = ""
    references: list[str] | None = None
    """The right answers that ragguard's own span of a run names."""
    evaluations: list[dict[str, Any]] = field(default_factory=list)


def read_span(span: TraceSpan) -> Record:
    """Returns what a span says. Never raises for what stands in a span."""
    record = Record(span)
    record.convention, record.kind = _kind(span.attributes)
    names = [one for one in CONVENTIONS if one.name == record.convention]
    names += [one for one in CONVENTIONS if one.name != record.convention]
    if record.kind is None and _documents_of_events(span, names) is not None:
        record.convention, record.kind = "OpenLLMetry", "retrieval"
    record.session = str(_first(span, names, "session") or "")
    record.evaluations = [dict(event.attributes) for event in span.events if event.name == EVALUATION]
    if record.kind is None or record.kind == "other":
        return record
    record.tool = str(_first(span, names, "tool") or span.name) if record.kind == "tool" else ""
    if record.kind == "model":
        record.asked, record.question = _conversation(span, names, "asked", "input")
        record.replied, record.answer = _conversation(span, names, "replied", "output")
        record.call = _call(span, names)
        return record
    references = json_of(str(span.attributes.get(_REFERENCES, "")))
    if isinstance(references, list) and all(isinstance(one, str) for one in references):
        record.references = references or None
    given = _first(span, names, "input")
    record.question = question_in(given)
    if record.kind == "task":
        record.asked = [one.text for one in messages_in(given) if one.role in USER]
    record.answer = answer_in(_first(span, names, "output"))
    if record.kind in (*_RETRIEVES, "tool", "task"):
        _read_documents(record, names)
    return record


def _read_documents(record: Record, names: list[Convention]) -> None:
    """Reads query and documents. A task whose output is documents is a retrieval, or, where its input held documents as
    well, a reranker."""
    span, declared = record.span, record.kind in _RETRIEVES
    record.query = question_in(_first(span, names, "query")) or record.question
    top_k = _first(span, names, "top_k")
    record.k = top_k if type(top_k) is int and top_k > 0 else None
    if declared:
        record.given = _documents(span, names, "given", declared=False)
        record.documents = _documents(span, names, "documents", declared=True)
        if record.documents is None:
            record.documents = _documents_of_events(span, names)
    by_shape = search_results(_first(span, names, "output"), declared=declared)
    if record.documents is None or _says_more(by_shape, record.documents):
        record.documents = by_shape
    if record.kind == "task" and record.documents is not None:
        record.given = search_results(_first(span, names, "input"))
        record.kind = "task" if record.given is None else "rerank"


def _says_more(output: list[Passage] | None, documents: list[Passage]) -> bool:
    """True where the output has the same texts with ids, which some instrumentations leave out of the documents."""
    texts = [one.text for one in documents]
    return (
        output is not None and not any(one.id for one in documents) and texts == [one.text for one in output]
    )


def _kind(attributes: Mapping[str, Any]) -> tuple[str, Kind | None]:
    for convention in CONVENTIONS:
        for name, kinds in convention.kinds.items():
            value = attributes.get(name)
            if value is not None:
                kind = kinds.get(str(value).strip('"').lower(), kinds.get("*"))
                if kind is not None:
                    return convention.name, kind
    return "", None


def _first(span: TraceSpan, conventions: list[Convention], what: str) -> Any:
    """Returns the first attribute there is of those that hold something, by any convention; on the span, then on its
    events. An entry in which the value is wrapped is taken out."""
    for place in (span.attributes, *(event.attributes for event in span.events if event.name != EVALUATION)):
        for value in _values(place, conventions, what):
            return _unpacked(value)
    return None


def _values(attributes: Mapping[str, Any], conventions: list[Convention], what: str) -> Iterator[Any]:
    """Yields the attributes that hold something by any convention, and are not empty."""
    for convention in conventions:
        for name in getattr(convention, what):
            if (value := attributes.get(name)) not in (None, ""):
                yield value


def _unpacked(value: Any) -> Any:
    """Returns the value, or what stands in it under one of the names in which a convention wraps it."""
    data = parsed(value)
    return (
        next((data[name] for name in _WRAPPED if name in data), value) if isinstance(data, Mapping) else value
    )


def _documents(
    span: TraceSpan, conventions: list[Convention], what: str, *, declared: bool
) -> list[Passage] | None:
    for convention in conventions:
        for name in getattr(convention, what):
            if "{i}" in name:
                items = _indexed(span.attributes, name)
                if items:
                    return [_passage(item) for item in items]
            elif name in span.attributes:
                value = _unpacked(span.attributes[name])
                found = search_results(value, declared=declared)
                if found is None and declared:
                    found = _bare_ids(value)
                if found is not None:
                    return found[:MOST_DOCUMENTS]
    return None


def _documents_of_events(span: TraceSpan, conventions: list[Convention]) -> list[Passage] | None:
    for convention in conventions:
        for name, prefix in convention.document_events.items():
            events = [event.attributes for event in span.events if event.name == name][:MOST_DOCUMENTS]
            fields = [{key.removeprefix(prefix): one for key, one in event.items()} for event in events]
            if fields:
                return [
                    _passage({"content": one.get("document", one.get("entity")), **one}) for one in fields
                ]
    return None


def _bare_ids(value: Any) -> list[Passage] | None:
    """Returns the documents of GenAI's conventions, which need no text: `[{"id": …, "score": …}]`."""
    data = parsed(value)
    if not isinstance(data, list) or not all(isinstance(one, Mapping) and "id" in one for one in data):
        return None
    return [passage(one.get("content"), one["id"], one.get("score"), one.get("metadata")) for one in data]


def _passage(item: Mapping[str, Any]) -> Passage:
    metadata = item.get("metadata")
    metadata = json_of(metadata) if isinstance(metadata, str) else metadata
    known = metadata if isinstance(metadata, Mapping) else None
    return passage(item.get("content"), item.get("id"), item.get("score"), known)


def _indexed(attributes: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Returns the items of a list that is written as indexed attributes, each with its fields by name."""
    before, pattern, items = name.partition("{i}")[0], _pattern(name), dict[int, dict[str, Any]]()
    for key, value in attributes.items():
        if key.startswith(before) and (found := pattern.fullmatch(key)):
            items.setdefault(int(found[1]), {})[found[2] or ""] = value
    return [items[number] for number in sorted(items)[:MOST_DOCUMENTS]]


@cache
def _pattern(name: str) -> re.Pattern[str]:
    before, _, after = name.partition("{i}")
    return re.compile(rf"{re.escape(before)}(\d{{1,6}}){re.escape(after)}(?:\.(.+))?")


def _conversation(
    span: TraceSpan, conventions: list[Convention], what: str, whole: str
) -> tuple[list[str], str]:
    """Returns the texts that a model was given or gave, and the question or the answer among them."""
    find = question_in if what == "asked" else answer_in
    for convention in conventions:
        for name in getattr(convention, what):
            if "{i}" in name:
                messages = [
                    {
                        "role": item.get("role", "user" if what == "asked" else "assistant"),
                        "content": _content(item),
                    }
                    for item in _indexed(span.attributes, name)
                ]
                if messages:
                    return [one["content"] for one in messages], find(messages)
            elif value := span.attributes.get(name):
                return _texts(value), find(value)
    value = _first(span, conventions, whole)
    return ([], "") if value is None else (_texts(value), find(value))


_PARTS = {"tokens_read": ("input", "input_tokens"), "tokens_written": ("output", "output_tokens"),
          "cost": ("total", "total_cost")}  # fmt: skip
"""The names of numbers in the attributes that hold several as JSON."""


def _call(span: TraceSpan, conventions: list[Convention]) -> dict[str, Any]:
    call: dict[str, Any] = {"model": str(next(_values(span.attributes, conventions, "model"), span.name))}
    for what, names in _PARTS.items():
        value = parsed(next(_values(span.attributes, conventions, what), None))
        if isinstance(value, Mapping):
            value = next((value[name] for name in names if name in value), None)
        if isinstance(value, int | float) and value >= 0:
            call[what] = value
    return call | {"started_ns": span.started_ns, "seconds": max(0, span.ended_ns - span.started_ns) / 1e9}


def _content(item: Mapping[str, Any]) -> str:
    """Returns the text of an indexed message, whose content may be one text or several blocks."""
    texts = [item.get("content"), item.get("text")]
    texts += [value for name, value in item.items() if name.endswith("message_content.text")]
    return "\n".join(str(one) for one in texts if one)


def _texts(value: Any) -> list[str]:
    messages = messages_in(value)
    if messages:
        return [one.text for one in messages]
    return list(_strings(parsed(value), 8))


def _strings(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, (list, Mapping)):
        text = text_in(value)
        if text:
            yield text
            return
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(inner, depth - 1)
