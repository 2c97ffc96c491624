"""The options by which the application describes its pipelines: which tools retrieve, what a model reads of a document,
where the question and the answer are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ragguard.capture.declarations import checked_tools, warn_of_missing
from ragguard.capture.splitters import Splitter
from ragguard.errors import InvalidInput
from ragguard.records import Passage
from ragguard_langchain.messages import Taken, unpacked
from ragguard_langchain.views import TextOf, checked_text_of, viewed

REFERENCES, NAME, RUN_ID = "ragguard_references", "ragguard_name", "ragguard_run_id"
RESUME = "ragguard_resume"
K = "ragguard_k"
"""The metadata key by which a retriever, or a call's config, says how many documents the retriever is asked for."""
RUN_KEYS = (REFERENCES, NAME, RUN_ID, RESUME)
"""Metadata keys by which a call's config says what its run is."""
KEYS = (*RUN_KEYS, K)
Locate: TypeAlias = Callable[[Any], object]
"""A function that finds the question in a pipeline's input, or the answer in its output."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """The options of one handler, checked when they are given."""

    tools: Mapping[str, Splitter] = field(default_factory=dict)
    text_of: TextOf | None = None
    question: Locate | None = None
    answer: Locate | None = None

    def unpack(self, taken: Taken) -> list[Passage]:
        """Returns a snapshot's passages with the texts that the model reads; called when the step is first read."""
        return unpacked(taken) if self.text_of is None else viewed(taken, self.text_of)


NO_OPTIONS = CallOptions()


def options_of(
    tools: object, text_of: TextOf | None, question: str | Locate | None, answer: str | Locate | None
) -> CallOptions:
    """Returns the checked options; a key of the input or output becomes a function that reads it."""
    return CallOptions(
        checked_tools(tools),
        checked_text_of(text_of),
        _locate("question", question),
        _locate("answer", answer),
    )


def _locate(argument: str, given: str | Locate | None) -> Locate | None:
    if given is None or callable(given):
        return given
    if not isinstance(given, str) or not given:
        raise InvalidInput(argument, given, f"the key that holds the {argument}, or a function that gives it")
    return lambda value: _held(value, given, argument)


def _held(value: object, key: str, argument: str) -> object:
    """Returns the value under a key of a mapping or an object; for a sequence, that of the last item that has one."""
    if isinstance(value, Mapping) and key in value:
        return value[key]
    if hasattr(value, key):
        return getattr(value, key)
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for item in reversed(value):
            if isinstance(item, Mapping) and key in item:
                return item[key]
    if value is not None:
        warn_of_missing(argument, key, value if isinstance(value, Mapping) else [type(value).__name__])
    return None
