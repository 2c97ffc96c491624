"""The splitters of tools' outputs, under their public name: `from ragguard.splitters import paragraphs`."""

from ragguard.capture.splitters import (
    Splitter,
    json_items,
    numbered,
    paragraphs,
    search_results,
    separated_by,
)

__all__ = ["Splitter", "json_items", "numbered", "paragraphs", "search_results", "separated_by"]
