"""The options by which the application describes its pipelines: in `instrument(rg, …)`, and in the tags of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ragguard.capture.declarations import checked_tools, warn_of_missing
from ragguard.capture.splitters import Splitter
from ragguard.errors import InvalidInput
from ragguard_llamaindex.nodes import TextOf, checked_text_of

REFERENCES, NAME, RUN_ID = "ragguard_references", "ragguard_name", "ragguard_run_id"
QUESTION, ANSWER = "ragguard_question", "ragguard_answer"
RESUME = "ragguard_resume"
KEYS = (REFERENCES, NAME, RUN_ID, RESUME, QUESTION, ANSWER)
"""Instrument tags by which a call says what its run is."""

QuestionOf: TypeAlias = Callable[[Mapping[str, Any]], object]
"""A function that finds the question in a pipeline's arguments, or in the fields of a workflow's start event."""
AnswerOf: TypeAlias = Callable[[Any], object]
"""A function that finds the answer in a pipeline's output: a response, or the result of a workflow's stop event."""


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """The options of one attachment, checked when they are given."""

    text_of: TextOf | None = None
    """A function that returns the text that the model reads of a node, where that is not LlamaIndex's own view."""
    tools: Mapping[str, Splitter] = field(default_factory=dict)
    """The tools that retrieve and return text or JSON, each with the splitter of its output."""
    question: QuestionOf | None = None
    answer: AnswerOf | None = None


def options_of(
    text_of: TextOf | None,
    tools: Mapping[str, Splitter] | None,
    question: str | QuestionOf | None,
    answer: str | AnswerOf | None,
) -> CaptureOptions:
    """Returns the checked options; a key of the input or output becomes a function that reads it."""
    return CaptureOptions(
        checked_text_of(text_of), checked_tools(tools), question_from("question", question),
        answer_from("answer", answer),
    )  # fmt: skip


def question_from(argument: str, value: object) -> QuestionOf | None:
    """Makes a function of a key or a function."""
    if value is None or callable(value):
        return value
    if not isinstance(value, str) or not value:
        raise InvalidInput(argument, value, "a key, or a function of what the pipeline is given")
    if " " in value.strip():
        return lambda given: value  # the question itself instead of a key
    return lambda given: _found(given, value, argument)


def answer_from(argument: str, value: object) -> AnswerOf | None:
    """Makes a function of a key or a function."""
    if value is None or callable(value):
        return value
    if not isinstance(value, str) or not value:
        raise InvalidInput(argument, value, "a key, or a function of what the pipeline gives")
    return lambda said: _found(fields_of(said), value, argument)


def fields_of(value: object) -> Mapping[str, Any]:
    """Returns the named parts of a value: the items of a mapping, the attributes of an object."""
    if isinstance(value, Mapping):
        return value
    fields = dict(getattr(value, "__dict__", {}) or {})
    to_dict = getattr(value, "to_dict", None)  # an event keeps values without a field in a mapping
    if callable(to_dict) and hasattr(value, "_data"):
        fields |= to_dict()
    return fields


def _found(fields: Mapping[str, Any], key: str, argument: str) -> object:
    value: object = fields
    for part in key.split("."):
        inner = value if isinstance(value, Mapping) else fields_of(value)
        if part not in inner:
            warn_of_missing(argument, key, fields)
            return None
        value = inner[part]
    return value
