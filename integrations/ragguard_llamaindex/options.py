"""The options by which the application describes its pipelines, and the tags by which a call says what its run is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ragguard.capture.declarations import Locate, checked_tools, locate
from ragguard.capture.splitters import Splitter
from ragguard_llamaindex.nodes import TextOf, checked_text_of

REFERENCES, NAME, RUN_ID = "ragguard_references", "ragguard_name", "ragguard_run_id"
RESUME = "ragguard_resume"
KEYS = (REFERENCES, NAME, RUN_ID, RESUME)
"""Instrument tags by which a call says what its run is."""


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """The options of one attachment, checked when they are given."""

    text_of: TextOf | None = None
    """A function that returns the text that the model reads of a node, where that is not LlamaIndex's own view."""
    tools: Mapping[str, Splitter] = field(default_factory=dict)
    """The tools that retrieve and return text or JSON, each with the splitter of its output."""
    question: Locate | None = None
    answer: Locate | None = None


def options_of(
    text_of: TextOf | None,
    tools: Mapping[str, Splitter] | None,
    question: str | Locate | None,
    answer: str | Locate | None,
) -> CaptureOptions:
    """Returns the checked options; a key of the input or output becomes a function that reads it."""
    return CaptureOptions(
        checked_text_of(text_of), checked_tools(tools), locate("question", question),
        locate("answer", answer),
    )  # fmt: skip
