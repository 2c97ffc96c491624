"""Finds which retrieved texts stand in a tool's output: the model got those, and the others are only candidates.

delivered(candidates, output)   # the passages that the model got, or None where that cannot be told
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragguard.capture.nothing_found import says_nothing
from ragguard.capture.words import Sought, Words, normalized
from ragguard.records import Passage

DELIVERED = "ragguard.delivered"
"""Metadata key of a step: `unknown` where it cannot be told which of the retrieved texts the model got, so that all of
them count."""
UNKNOWN = "unknown"


def notice(metadata: Mapping[str, Any], counted: int) -> str:
    """Returns the notice that a reader of a step's numbers needs where the step's delivery is unknown, else ''."""
    if metadata.get(DELIVERED) != UNKNOWN:
        return ""
    return f"what the model read is unknown: all {counted} candidates are counted"


def delivered(
    candidates: Sequence[Passage], output: str, bodies: Sequence[str] = ()
) -> list[tuple[int, Passage]] | None:
    """Returns the candidates whose texts stand in a tool's output, each with its index, in the output's order.

    Returns an empty list for an output that holds none of the texts and is short, or says that there is nothing.
    Returns None where nothing can be told: a longer output in other words, such as a summary, or the beginning of a
    text without its end.

    Args:
        candidates: What was retrieved.
        output: What the tool gave.
        bodies: For each candidate its text without the metadata before it, where the tool may give that alone.
    """
    words = Words.of(output)
    there = Sought(candidates, bodies).standing(words)
    if there.cut:
        return None
    if there.none and words.text:
        known = {word for one in candidates for word in normalized(one.text).split(" ")}
        return there.found if says_nothing(words.readable, set(words.text.split(" ")), known) else None
    return there.found
