"""Cuts a text into passages that follow its headings, paragraphs, list items and table rows, and into sentences: a row
becomes `room: Lynx; seats: 20`, under the heading `The office › Rooms`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from ragguard.records import Passage

HEADING = "heading"
"""The metadata key of a passage's heading, which stands in the first line of its text."""
WORDS = 120
"""The most words of a passage."""
_LONG = 10
"""The characters from which a text, as of code or addresses, counts as more words than it has."""
_LONGEST_WORD = 200
"""The longest word of a text; longer ones are of a script without spaces, or no words."""
_CUT = 600
"""The characters of a passage of such a text."""
_WRAPPED = 50
"""The least characters of a line that goes on in the next one; shorter ones, as of addresses, stand for themselves."""
_ATX = re.compile(r"(#{1,6})\s+(\S.*?)[\s#]*$")
_UNDERLINE = re.compile(r"(=|-|~|\^|\"|\*|\+)\1{2,}\s*$")
_LEVELS = '=-~^"*+'
_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+\S")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_RULE = re.compile(r"[\s|:=-]+$")
_END = re.compile(r"(?<=[.!?])[\"'”’)\]]?\s+(?=[A-Z0-9\"'“‘(\[])|(?<=[。！？])")
_NO_END = re.compile(r"(?:\b(?:Dr|Mr|Mrs|Ms|St|No|vs|e\.g|i\.e|Prof|Jr|Sr|cf|approx|[A-Z]))\.$")


class Chunk(NamedTuple):
    """A passage of a text."""

    heading: str
    """The headings above it, the outermost first."""
    text: str
    """The heading in a line, then paragraphs, items and rows, one in a line."""


def split(text: str, kind: str = ".txt") -> list[Chunk]:
    """Joins neighbouring paragraphs, items and rows under one heading into passages of at most 120 words, and cuts
    longer ones."""
    chunks: list[Chunk] = []
    for heading, units in groupby(_units(text, kind), lambda unit: unit[0]):
        chunks += [
            Chunk(heading, f"{heading}\n{body}" if heading else body)
            for body in _packed(unit for _, unit in units)
        ]
    return chunks


def sentences(passage: Passage) -> list[str]:
    """Returns the sentences, rows and items of a passage, without its heading."""
    lines = passage.text.splitlines()
    if lines and passage.metadata.get(HEADING) == lines[0]:
        lines = lines[1:]
    return [sentence for line in lines for sentence in _sentences(line)]


def _sentences(line: str) -> list[str]:
    found: list[str] = []
    for piece in filter(None, map(str.strip, _END.split(line))):
        if found and _NO_END.search(found[-1]):
            found[-1] += f" {piece}"
        else:
            found.append(piece)
    return found


def _packed(units: Iterator[str]) -> Iterator[str]:
    """Yields neighbouring units together, as far as they fit into one passage."""
    held: list[str] = []
    count = 0
    for piece in (piece for unit in units for piece in _cut(unit)):
        words = WORDS if _is_spaceless(piece) else _words_of(piece)
        if held and count + words > WORDS:
            yield "\n".join(held)
            held, count = [], 0
        held.append(piece)
        count += words
    if held:
        yield "\n".join(held)


def _cut(unit: str) -> Iterator[str]:
    """Yields a unit in pieces of at most 120 words, which end with a sentence if they can."""
    words = unit.split()
    if _is_spaceless(unit):
        yield from (unit[at : at + _CUT] for at in range(0, len(unit), _CUT))
    elif _words_of(unit) <= WORDS:
        yield unit
    elif len(whole := _sentences(unit)) > 1:
        yield from _packed(piece for sentence in whole for piece in _cut(sentence))
    elif len(lines := unit.splitlines()) > 1:
        yield from _packed(piece for line in lines if line.strip() for piece in _cut(line))
    else:
        size = max(1, WORDS * len(words) // _words_of(unit))
        yield from (" ".join(words[at : at + size]) for at in range(0, len(words), size))


def _words_of(text: str) -> int:
    return max(len(text.split()), len(text) // _LONG)


def _is_spaceless(text: str) -> bool:
    return max(map(len, text.split())) > _LONGEST_WORD


def _units(text: str, kind: str) -> Iterator[tuple[str, str]]:
    """Yields the paragraphs, items, rows and blocks of code of a text, each behind the headings above it."""
    above: list[tuple[int, str]] = []
    for block in _blocks(text.splitlines(), titled=kind != ".py"):
        if isinstance(block, tuple):
            above = [*(known for known in above if known[0] < block[0]), block]
        else:
            heading = " › ".join(title for _, title in above)
            yield from ((heading, unit) for unit in block if unit.strip())


def _blocks(lines: Sequence[str], *, titled: bool) -> Iterator[tuple[int, str] | list[str]]:
    """Yields headings, with their level, and blocks between blank lines as their units."""
    block: list[str] = []
    fenced = False
    for line in [*lines, ""]:
        if fence := _FENCE.match(line):
            fenced = not fenced
        if fenced or fence:
            block.append(line.rstrip())
            continue
        heading = _ATX.match(line) if titled else None
        underlined = titled and len(block) == 1 and _UNDERLINE.match(line) and not block[0].startswith("|")
        if line.strip() and not heading and not underlined:
            block.append(line.rstrip())
            continue
        if underlined:
            yield 1 + _LEVELS.index(line[0]), block[0].strip()
        elif block:
            yield _in_units(block, prose=titled)
        block = []
        if heading:
            yield len(heading[1]), heading[2]


def _in_units(block: Sequence[str], *, prose: bool) -> list[str]:
    """Returns the units of a block: rows of a table with their columns' names, items, or a paragraph in one line."""
    if not prose or _FENCE.match(block[0]):
        return ["\n".join(block)]
    if len(block) > 1 and all(line.lstrip().startswith("|") for line in block):
        titles, *rows = ([cell.strip() for cell in line.strip().strip("|").split("|")] for line in block)
        return [
            "; ".join(
                f"{title}: {cell}" if title else cell
                for title, cell in zip(titles, row, strict=False)
                if cell
            )
            for row, line in zip(rows, block[1:], strict=True)
            if not _RULE.match(line)
        ]
    units = [block[0].strip()]
    for before, line in pairwise(block):
        goes_on = len(before) >= _WRAPPED or line.lstrip()[:1].islower()
        if goes_on and not _ITEM.match(line):
            units[-1] += f" {line.strip()}"
        else:
            units.append(line.strip())
    return units
