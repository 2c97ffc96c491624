"""Tells a tool's output that says that there is nothing ("No results found.", an error) from any other."""

from __future__ import annotations

import re
from collections.abc import Set

_SHORT = 200
"""The length, in characters, from which an output in other words may be a summary."""
_NOTHING = re.compile(
    r"\W*(?:sorry\W+)?(?:\w*(?:error|exception)\s*[:(\n]|an error\b|traceback\b|none(?: found)?\W*$|failed to\b|"
    r"nothing\W+(?:was\W+|has been\W+)?(?:found|retrieved|available)\b|"
    r"(?:i\W+|we\W+)?(?:could\W*no?t|can\W*no?t|can't|did\W*no?t|couldn't|didn't|unable to)\W+(?:find|get|retrieve)\b|"
    r"(?:no|0|zero)\s+(?:\w+\s+){0,3}?(?:result|document|doc|match|matche|passage|information|record|entry|entrie|hit|"
    r"data|answer|node)s?\b)",
    re.IGNORECASE,
)
"""The beginning of an output that says in plain words that there is nothing: no results, an error."""


def says_nothing(output: str, said: Set[str], known: Set[str]) -> bool:
    """Returns True for an output that says in plain words that there is nothing, and for a short one in other words.

    Args:
        output: What a tool gave; it quotes none of the retrieved texts.
        said: The words of the output.
        known: The words of the retrieved texts. A short output that consists of such words may be an answer.
    """
    return bool(_NOTHING.match(output)) or (
        len(output.strip()) < _SHORT and 2 * len(said & known) < len(said)
    )
