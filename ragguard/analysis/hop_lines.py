"""Prints hops as lines of a terminal, each with a small table of its passages.

A run may have ten thousand hops, and a table of Rich's takes milliseconds: these lines take microseconds.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from ragguard.analysis.digest import MISLEADS

BAR = 6
"""The number of cells of one side of a utility bar."""
_UTILITY = 2 * BAR + 7
_VERDICT = 32
_LEAST = 8
"""The narrowest column of passages."""
_GAP = "   "
_NEW_LINE = Segment.line()
_DIM = Style(dim=True)
_BOLD = Style(bold=True)


@dataclass(frozen=True, slots=True)
class Row:
    """A passage as a line: its rank, its text in one line, its utility or else what is known of it, and its verdict."""

    position: int
    text: str
    utility: float | None
    verdict: str
    colour: str
    dim: bool
    judged: str = "not judged"
    """The words in place of a utility that is not known."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A hop as lines: its number, its query, its scores in one line, reasons for missing scores, and its passages."""

    number: str
    query: str
    facts: str
    reasons: Sequence[str]
    rows: Sequence[Row]


class Hops:
    """A renderable for Rich that prints hops one below the other."""

    def __init__(self, hops: Sequence[Hop]) -> None:
        self._hops = hops

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        width = options.max_width
        for hop in self._hops:
            yield from _line(console, [Segment(hop.number), Segment(hop.query, _BOLD)], width)
            yield from _line(console, [Segment(hop.facts)], width)
            for reason in hop.reasons:
                yield from _line(console, [Segment(reason, Style(color="yellow"))], width)
            yield from _table(hop.rows, width)


def colour_of(value: float) -> str:
    """Returns the colour of a utility: red for harm, green for help, grey for neither."""
    return "red" if value < MISLEADS else "green" if value > -MISLEADS else "bright_black"


def _line(console: Console, parts: list[Segment], width: int) -> Iterator[Segment]:
    """Yields one line of a hop's title; a line that is wider than the terminal is wrapped by Rich."""
    if any("\n" in part.text for part in parts) or sum(cell_len(part.text) for part in parts) > width:
        text = Text.assemble(*((part.text, part.style or "") for part in parts))
        yield from console.render(text, console.options.update(width=width))
        return
    yield from parts
    yield _NEW_LINE


def _table(rows: Sequence[Row], width: int) -> Iterator[Segment]:
    ranks = max(2, len(str(len(rows))))
    verdicts = max([7, *(cell_len(row.verdict) for row in rows)])
    verdicts = min(verdicts, _VERDICT)
    passages = max(_LEAST, width - ranks - _UTILITY - verdicts - 3 * len(_GAP) - 2)
    yield _NEW_LINE
    titles = f" {'#':>{ranks}}{_GAP}{_fit('passage', passages)}{_GAP}{_fit('utility', _UTILITY)}{_GAP}verdict"
    yield Segment(titles, _BOLD)
    yield _NEW_LINE
    yield Segment(" " + "─" * (ranks + passages + _UTILITY + verdicts + 3 * len(_GAP)))
    yield _NEW_LINE
    for row in rows:
        shade = _DIM if row.dim else Style.null()
        yield Segment(f" {row.position:>{ranks}}{_GAP}{_fit(row.text, passages)}{_GAP}", shade)
        yield from _bar(row.utility, row.judged, shade)
        fits = len(row.verdict) <= verdicts
        first, *others = [row.verdict] if fits else textwrap.wrap(row.verdict, verdicts)
        style = shade + (Style(color=row.colour) if row.colour else Style.null())
        yield Segment(_GAP + first, style)
        yield _NEW_LINE
        for more in others:
            yield Segment(" " * (1 + ranks + passages + _UTILITY + 3 * len(_GAP)) + more, style)
            yield _NEW_LINE
    yield _NEW_LINE


def _fit(text: str, width: int) -> str:
    """Returns the text padded or cut to `width` cells; a cut text ends in "…"."""
    if text.isascii():
        return text.ljust(width) if len(text) <= width else text[: width - 1] + "…"
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + "…"


def _bar(utility: float | None, otherwise: str, shade: Style) -> Iterator[Segment]:
    if utility is None:
        yield Segment(_fit(otherwise, _UTILITY), shade + _DIM)
        return
    cells = min(BAR, round(abs(utility) * BAR))
    left, right = (cells, 0) if utility < 0 else (0, cells)
    yield Segment(" " * (BAR - left), shade)
    yield Segment("█" * left, shade + Style(color="red"))
    yield Segment("│", shade)
    yield Segment("█" * right, shade + Style(color="green"))
    yield Segment(f"{' ' * (BAR - right)} {utility:+z.2f}", shade)
