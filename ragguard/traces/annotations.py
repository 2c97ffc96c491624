"""Annotations of spans: those of people, and evaluations by models and code, which are kept apart.

An annotation is a mapping with `name`, `label`, `score`, `by` and `at`, and `kind`, which is `HUMAN` for one of a
person. Readers of Phoenix and Langfuse put them on the span as events; OpenInference's stand in attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from ragguard.capture.splitters import json_of
from ragguard.metrics.registry import METRICS
from ragguard.traces.spans import Data, SpanEvent, TraceSpan, object_in, objects_in

ANNOTATION = "annotation"
"""The event of a span that holds an annotation."""
PERSON = "HUMAN"
_ATTRIBUTE = re.compile(r"(?:trace\.|session\.)?evaluations\.(\d{1,4})\.evaluation\.(\w+)")
_BY_PEOPLE = {"ANNOTATION": PERSON, "EVAL": "LLM", "API": "API"}
_THUMBS = ("feedback", "thumb", "user")
"""The parts of names under which applications send what their users say to Langfuse, by its API."""


def is_of_person(annotation: Data) -> bool:
    """True for an annotation that a person made, by all that is known of it."""
    return str(annotation.get("kind") or "").upper() == PERSON


def annotations_of(span: TraceSpan) -> Iterator[Data]:
    """Yields the annotations of a span: those in its events, then those in its attributes."""
    for event in span.events:
        if event.name == ANNOTATION:
            yield event.attributes
    found: dict[str, dict[str, Any]] = {}
    for name, value in span.attributes.items():
        if match := _ATTRIBUTE.fullmatch(name):
            found.setdefault(match[1], {})[match[2]] = value
    for fields in found.values():
        about = object_in(json_of(fields.get("metadata")))
        yield {
            **{name: fields[name] for name in ("name", "label", "score", "explanation") if name in fields},
            "kind": fields.get("annotator_kind") or about.get("annotator_kind"),
            "by": about.get("author") or about.get("user_id") or about.get("identifier"),
            "at": about.get("created_at"),
        }  # fmt: skip


def _is_own(name: object, metadata: object) -> bool:
    """True for a score that ragguard wrote back, which would make a run another one when its trace is pulled again."""
    return "scorer" in object_in(metadata) and str(name).removesuffix(".support") in METRICS


def of_phoenix(annotations: object) -> Iterable[SpanEvent]:
    """Yields the annotations of Phoenix' REST interface as events of their span."""
    for one in objects_in(annotations):
        if _is_own(one.get("name"), one.get("metadata")):
            continue
        result = object_in(one.get("result"))
        yield SpanEvent(ANNOTATION, {
            "name": one.get("name"), "kind": one.get("annotator_kind"), "label": result.get("label"),
            "score": result.get("score"), "by": one.get("user_id") or one.get("identifier"),
            "at": one.get("updated_at") or one.get("created_at"),
        })  # fmt: skip


def of_langfuse(scores: object) -> Iterable[SpanEvent]:
    """Yields the scores of Langfuse's API as events of their observation. A score that came by the API is a person's if
    its name says that a user gave it; one of an evaluator never is."""
    for one in objects_in(scores):
        if _is_own(one.get("name"), json_of(one.get("metadata"))):
            continue
        kind, name = _BY_PEOPLE.get(str(one.get("source")), ""), str(one.get("name") or "")
        if kind == "API" and any(part in name.lower() for part in _THUMBS):
            kind = PERSON
        yield SpanEvent(ANNOTATION, {
            "name": name, "kind": kind, "label": one.get("stringValue"), "score": one.get("value"),
            "by": one.get("authorUserId"), "at": one.get("timestamp"),
        })  # fmt: skip
