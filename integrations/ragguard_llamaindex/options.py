"""What `instrument(rg, …)` was told about the application's pipelines."""

from __future__ import annotations

from dataclasses import dataclass

from ragguard_llamaindex.nodes import TextOf, checked_text_of


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """The options of one attachment, checked when they are given."""

    text_of: TextOf | None = None
    """Gives what the model reads of a node, where that is not LlamaIndex's own view of it."""

    def __post_init__(self) -> None:
        checked_text_of(self.text_of)
