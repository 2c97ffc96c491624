"""The parts of an answer that names several things, such as "Oslo and 1905" or "Ada Berg; Bo Lund"."""

from __future__ import annotations

import re

from ragguard.text.statements.phrases import findable

_BETWEEN = re.compile(r",?\s+(?:and|&|/)\s+|\s*;\s*|(?<=[^\W\d_]{2})/(?=[^\W\d_]{2})")


def parts_of(text: str) -> list[str]:
    """Returns the parts of a short text between "and", "&", ";" and "/"; none if it is one thing, or if a part could
    stand in a passage by chance."""
    parts = [part.strip(" ,.") for part in _BETWEEN.split(text)]
    return parts if len(parts) > 1 and all(findable([each]) for each in (text, *parts)) else []
