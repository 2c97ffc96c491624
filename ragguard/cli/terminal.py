"""What the commands print on: narrow terminals, pipes, and terminals that do not speak UTF-8."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragguard.runtime.terminal_text import harmless

if TYPE_CHECKING:
    from rich.console import Console

UNTOLD = 120
"""The width where no terminal tells one, as in a CI log."""
_ASCII = {"Δ": "d", "±": "~", "█": "#", "│": "|", "…": ".", "–": "-", "−": "-", "→": ">", "µ": "u", "×": "x"}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table; cells are markup."""

    title: str
    cells: Sequence[str]
    right: bool = False
    spare: int = 0
    """What a narrow terminal leaves out first: the highest; 0 always stays."""
    least: int | None = None
    """Of a column that may wrap: the width that it must have."""


def say(text: str, *, error: bool = False) -> None:
    """Prints a text of which any part may come from outside."""
    import typer

    typer.echo(harmless(text), err=error)


def speak_any_encoding() -> None:
    """Characters that the terminal has not are replaced: a table with `?` in it is better than none."""
    codecs.register_error("ragguard.nearest", _nearest)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="ragguard.nearest")


def screen() -> Console:
    """The console of a command that prints tables."""
    from rich.console import Console

    told = "COLUMNS" in os.environ or any(map(os.isatty, range(3)))
    return Console(highlight=False, width=None if told else UNTOLD)


def show_table(console: Console, title: str, columns: Sequence[Column]) -> None:
    """Prints what fits beside each other, and says what does not."""
    from rich import box
    from rich.table import Table

    shown, fits = fitting(columns, console.width)
    table = Table(box=box.SIMPLE, title=title, title_justify="left")
    for column in shown:
        table.add_column(
            column.title, justify="right" if column.right else "left",
            no_wrap=fits and column.least is None, ratio=None if column.least is None else 1,
        )  # fmt: skip
    for row in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*row)
    console.print(table)
    left_out = [column.title for column in columns if column not in shown]
    if left_out:
        console.print(f"A wider terminal shows more: {', '.join(left_out)}.")


def fitting(columns: Sequence[Column], width: int) -> tuple[list[Column], bool]:
    """Those that stay where not all fit, the most dispensable going first; and whether these fit."""
    from rich.text import Text

    def needed(column: Column) -> int:
        cells = (column.title, *column.cells)
        return 3 + (column.least or max(Text.from_markup(cell).cell_len for cell in cells))

    widths = [(column, needed(column)) for column in columns]
    while 1 + sum(cells for _, cells in widths) > width and (spare := max(one.spare for one, _ in widths)):
        widths = [(column, cells) for column, cells in widths if column.spare != spare]
    return [column for column, _ in widths], 1 + sum(cells for _, cells in widths) <= width


def _nearest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_ASCII.get(character, "?") for character in missing), error.end
