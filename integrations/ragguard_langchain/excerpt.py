"""Cuts passages out of a tool's output, each with the text that frames it.

A tool writes its passages as it likes: separated by blank lines, as a list, between tags, as JSON, each with its source
and its number. A passage is cut out with its frame: its source must not end up before another passage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from ragguard.capture.splitters import json_list

Render: TypeAlias = Callable[[Sequence[str]], str]

_HEAD = 40
"""The number of a passage's first characters that must stand in a text for it to count as a part of the text."""
_FRAMES = (
    # a closing and an opening tag
    (re.compile(r"</[^<>]*>(\s*)<(?=[A-Za-z])"), re.compile(r">\s*(?=<[A-Za-z])"), re.compile(r"(?<=>)")),
    # a blank line
    (re.compile(r"(\n[^\S\n]*\n)"), re.compile(r"\n[^\S\n]*\n"), re.compile(r"\n[^\S\n]*\n")),
    # a new line
    (re.compile(r"(\n)"), re.compile(r"\n"), re.compile(r"\n")),
)
"""Separators, in the order in which they are tried: one that stands between two passages, one that stands before the
first passage, and one that stands behind the last. The first separator that stands exactly once between any two
passages is used."""


def without(content: Any, passages: Sequence[str], stays: Sequence[bool], render: Render) -> Any:
    """Returns a message's content without the passages that do not stay.

    Content that holds none of the passages is returned as it is. Where no separator between the passages is found, the
    ones that stay are rendered anew.
    """
    if isinstance(content, str):
        return _text_without(content, passages, stays, render)
    if not isinstance(content, list):
        return content
    texts = [_block_text(block) for block in content]
    textual = [number for number, text in enumerate(texts) if text is not None]
    if len(textual) == len(passages) and all(
        passage in (texts[number] or "") for number, passage in zip(textual, passages, strict=True)
    ):
        gone = {number for number, stay in zip(textual, stays, strict=True) if not stay}
        return [block for number, block in enumerate(content) if number not in gone]
    whole = "\n".join(text for text in texts if text is not None)
    left = _text_without(whole, passages, stays, render)
    if left == whole:
        return content
    others = [block for block, text in zip(content, texts, strict=True) if text is None]
    return [{"type": "text", "text": left}, *others]


def _block_text(block: object) -> str | None:
    """Returns the text of one block of a message's content; None for a block of another kind."""
    if isinstance(block, str):
        return block
    text = block.get("text") if isinstance(block, dict) else None
    return text if isinstance(text, str) else None


def _text_without(text: str, passages: Sequence[str], stays: Sequence[bool], render: Render) -> str:
    as_json = _json_without(text, stays)
    if as_json is not None:
        return as_json
    ranges = _ranges(text, passages)
    left = None if ranges is None else _cut(text, ranges, stays)
    if left is not None:
        return left
    if not any(passage.strip() and passage.strip()[:_HEAD] in text for passage in passages):
        return text
    return render([passage for passage, stay in zip(passages, stays, strict=True) if stay])


def _json_without(text: str, stays: Sequence[bool]) -> str | None:
    """Returns the text without the dropped items where it is JSON with a list of as many items, else None."""
    if text.lstrip()[:1] not in ("[", "{"):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    items = json_list(value)
    if items is None or len(items) != len(stays):
        return None
    items[:] = [item for item, stay in zip(items, stays, strict=True) if stay]
    return json.dumps(value, ensure_ascii=text.isascii(), indent=2 if "\n" in text.strip() else None)


def _ranges(text: str, passages: Sequence[str]) -> list[tuple[int, int]] | None:
    """Returns the start and end of each passage in the text; None where one is not found behind the one before it."""
    ranges, at = [], 0
    for passage in passages:
        begin = text.find(passage, at) if passage else -1
        if begin < 0:
            return None
        at = begin + len(passage)
        ranges.append((begin, at))
    return ranges


def _cut(text: str, ranges: Sequence[tuple[int, int]], stays: Sequence[bool]) -> str | None:
    """Returns the text without the passages at these ranges that do not stay; None where no separator is found."""
    bounds = _bounds(text, ranges)
    if bounds is None:
        return None
    left = ""
    for number in (number for number, stay in enumerate(stays) if stay):
        begin, end = bounds[number]
        led = text[bounds[number - 1][1] : begin] if left else ""
        left += led + text[begin:end]
    return text[: bounds[0][0]] + left + text[bounds[-1][1] :] if left else ""


def _bounds(text: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]] | None:
    """Returns where each passage begins and ends together with its frame; None where no separator is found."""
    gaps = [text[before[1] : behind[0]] for before, behind in pairwise(ranges)]
    head, tail = text[: ranges[0][0]], text[ranges[-1][1] :]
    for between, before, behind in _FRAMES:
        found = [[*between.finditer(gap)] for gap in gaps]
        if found and all(len(matches) == 1 for matches in found):
            borders = [matches[0].span(1) for matches in found]
            # The text before the first frame and behind the last one belongs to no passage.
            begin = max((match.end() for match in before.finditer(head)), default=0)
            end = next((match.start() for match in behind.finditer(tail)), len(tail.rstrip()))
            break
    else:
        if len(set(gaps)) > 1:
            return None
        # One separator, such as a comma or a rule; or one passage only.
        borders, begin, end = [(0, len(gap)) for gap in gaps], len(head), 0
    gone = [(one[1] + border[0], one[1] + border[1]) for one, border in zip(ranges, borders, strict=False)]
    starts = [begin, *(behind for _, behind in gone)]
    ends = [*(before for before, _ in gone), ranges[-1][1] + end]
    return list(zip(starts, ends, strict=True))
