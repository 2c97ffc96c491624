"""Finds which retrieved texts stand in a tool's output: the model got those, and the others are only candidates.

A tool writes its passages as it likes: numbered, joined, as JSON, with its own words around them. Texts are therefore
compared by their words alone, without case, punctuation and white space. A text counts as a whole or not at all.

    delivered(candidates, output)   # the passages that the model got, or None where that cannot be told
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragguard.capture.nothing_found import says_nothing
from ragguard.records import Passage

DELIVERED = "ragguard.delivered"
"""Metadata key of a step: `unknown` where it cannot be told which of the retrieved texts the model got, so that all of
them count."""
UNKNOWN = "unknown"
_HEAD = 40
"""The number of characters of words at the beginning of a text that show, without the rest, that it was cut."""
_WORD = re.compile(r"[^\W_]+")
_SPACELESS = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""A character of a script without spaces between words (Thai, Lao, Burmese, Khmer, kana, Han): a word of its own."""
_NOTATION = re.compile(r"\\[nrt]|&(?:#\d+|#x[0-9a-f]+|[a-z]+);", re.IGNORECASE)
"""Line ends in string literals, and entities of HTML: notation, not words."""
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})", re.IGNORECASE)


def notice(metadata: Mapping[str, Any], counted: int) -> str:
    """Returns the notice that a reader of a step's numbers needs where the step's delivery is unknown, else ''."""
    if metadata.get(DELIVERED) != UNKNOWN:
        return ""
    return f"what the model read is unknown: all {counted} candidates are counted"


def delivered(
    candidates: Sequence[Passage], output: str, bodies: Sequence[str] = ()
) -> list[tuple[int, Passage]] | None:
    """Returns the candidates whose texts stand in the output, each with its index, in the output's order.

    Longer texts are looked for first, and words of the output count once, so that a text which is a part of another one
    is not found in it. Passages without text stay, since their absence cannot be seen.

    Returns an empty list for an output that holds none of the texts and is short, or says that there is nothing.
    Returns None where nothing can be told: a longer output in other words, such as a summary, or the beginning of a
    text without its end.

    Args:
        candidates: What was retrieved.
        output: What the tool gave.
        bodies: For each candidate its text without the metadata before it, where the tool may give that alone.
    """
    readable = _readable(output)
    said = normalized(readable)
    left = f" {said} "
    positions: dict[int, tuple[int, Passage]] = {}
    forms = [(index, one, normalized(one.text)) for index, one in _forms(candidates, bodies)]
    # Of texts with the same words, such as "C++" and "C#", the one that stands there letter by letter comes first.
    forms.sort(key=lambda form: (-len(form[2]), form[1].text.strip() not in readable))
    for index, one, words in forms:
        if index in positions:
            continue
        at = left.find(f" {words} ") if words else readable.find(one.text.strip())
        if at >= 0:
            positions[index] = at, one
            left = left[: at + 1] + "\0" * len(words) + left[at + 1 + len(words) :]
    if any(
        len(words) > _HEAD and words[:_HEAD] in left for index, _, words in forms if index not in positions
    ):
        return None
    textless = [(index, one) for index, one in enumerate(candidates) if not one.text.strip()]
    if forms and said and not positions:
        known = {word for _, _, words in forms for word in words.split(" ")}
        return textless if says_nothing(readable, set(said.split(" ")), known) else None
    ordered = sorted(positions.items(), key=lambda item: (item[1][0], item[0]))
    return [(index, one) for index, (_, one) in ordered] + textless


def normalized(text: str) -> str:
    """Returns the words of a text, without case, set apart by single spaces."""
    text = unicodedata.normalize("NFKC", _NOTATION.sub(" ", text)).casefold()
    return " ".join(_WORD.findall(_SPACELESS.sub(r" \g<0> ", text)))


def _forms(candidates: Sequence[Passage], bodies: Sequence[str]) -> Iterator[tuple[int, Passage]]:
    """Yields each candidate with its index, and once more with its text as the tool may give it without metadata."""
    for index, one in enumerate(candidates):
        body = bodies[index].strip() if index < len(bodies) else ""
        if one.text.strip():
            yield index, one
            if body and body != one.text.strip():
                yield index, replace(one, text=body)


def _readable(output: str) -> str:
    """Returns the output without the notation of JSON, where it is JSON."""
    if output.lstrip()[:1] in ("[", "{"):
        try:
            return "\n".join(_strings(json.loads(output)))
        except (ValueError, RecursionError):
            pass
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), output)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _strings(key)
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    else:
        yield str(value)
