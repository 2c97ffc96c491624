"""The options by which the application describes its pipelines: which tools retrieve, what a model reads of a document,
where the question and the answer are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ragguard.capture.declarations import Locate, checked_tools, locate
from ragguard.capture.splitters import Splitter
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
        locate("question", question),
        locate("answer", answer),
    )
