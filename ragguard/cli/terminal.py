"""Options that several commands have, with one text of help each, and texts and tables for narrow terminals, pipes, and
terminals without UTF-8."""

from __future__ import annotations

import io
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ragguard.errors import InvalidInput
from ragguard.text.secret_filter import strip_control_characters

if TYPE_CHECKING:
    from ragguard.analysis.tables import Table as ResultTable

DEFAULT_WIDTH = 120
"""The width of a table where the terminal's width is not known, as in a CI log."""
LINE_EVERY_S = 30.0
"""The seconds between two lines of progress where no bar can be shown."""
REASONS_SHOWN = 10
"""The most reasons of failures that a command prints."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; its cells are markup of rich."""

    title: str
    cells: Sequence[str]
    right: bool = False
    spare: int = 0
    """The order in which a narrow terminal leaves columns out: the highest number first, and never 0."""
    least: int | None = None
    """The least width of a column that may wrap, into two lines at most; None for a column that may not."""


def say(text: str, *, error: bool = False) -> None:
    """Prints a text without control characters, as any part of it may come from outside."""
    print(strip_control_characters(text), file=sys.stderr if error else sys.stdout, flush=True)


def refuse_together(*options: tuple[str, object]) -> None:
    """Raises InvalidInput where several of these options are given: the first has no effect beside the others."""
    given = [(name, value) for name, value in options if value is not None and value is not False]
    if len(given) > 1:
        name, value = given[0]
        raise InvalidInput(name, value, f"nothing beside {given[1][0]}")


def names_of(listed: str | None) -> tuple[str, ...] | None:
    """Returns the names of an option that lists them with commas between; None where it is not given."""
    return None if listed is None else tuple(filter(None, (name.strip() for name in listed.split(","))))


def speak_any_encoding() -> None:
    """Replaces characters that the terminal's encoding lacks, so that a table is printed with `?` and does not fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def screen() -> Console:
    """Returns the console for tables."""
    known = "COLUMNS" in os.environ or any(map(os.isatty, range(3)))
    return Console(highlight=False, width=None if known else DEFAULT_WIDTH)


@contextmanager
def work_status() -> Iterator[Callable[[str, int, int], None]]:
    """Shows in a terminal what is being done, and yields the function that gets what is done."""
    with Console(stderr=True).status("") as status:
        yield lambda what, done, of: status.update(f"{what}: {done:,} of {of:,}")


def reason_lines(reasons: Counter[str], whole: str) -> list[str]:
    """Returns the most common reasons of failures, one a line; `whole` names what has all of them."""
    lines = [f"  {count:,} x {reason}" for reason, count in reasons.most_common(REASONS_SHOWN)]
    more = len(reasons) - REASONS_SHOWN
    return [*lines, f"  and {more} other reasons; {whole} has all"] if more > 0 else lines


@contextmanager
def progress_bar(description: str, *, total: int | None, completed: int = 0) -> Iterator[Callable[..., None]]:
    """Shows a progress bar in a terminal, beside the output proper, and yields the function that updates it. Elsewhere,
    as in a pipe, prints a line each half minute."""
    console = Console(stderr=True)
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    began = printed = monotonic()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=total, completed=completed)

        def update(**change: Any) -> None:
            nonlocal printed
            bar.update(task, **change)
            now, shown = monotonic(), bar.tasks[0]
            done = shown.completed - completed
            if console.is_terminal or now - printed < LINE_EVERY_S or shown.finished or done <= 0:
                return
            printed = now
            left = (now - began) / done * (shown.remaining or 0.0)
            say(f"{shown.description}: {shown.percentage:.0f} %, about {left / 60:.0f} min left", error=True)

        yield update


def show_table(console: Console, title: str, columns: Sequence[Column]) -> None:
    """Prints the columns that fit into the terminal, and names those that do not: the most dispensable ones."""
    widths = {id(column): _needed(column) for column in columns}
    shown = list(columns)
    while (wide := 1 + sum(widths[id(one)] for one in shown)) > console.width and any(
        one.spare for one in shown
    ):
        spare = max(one.spare for one in shown)
        shown = [one for one in shown if one.spare != spare]
    table = Table(box=box.SIMPLE, title=title, title_justify="left")
    for column in shown:
        table.add_column(
            column.title, justify="right" if column.right else "left",
            no_wrap=wide <= console.width and column.least is None, ratio=None if column.least is None else 1,
        )  # fmt: skip
    rest = console.width - 4 - sum(widths[id(one)] for one in shown if one.least is None)
    cells = [
        one.cells if one.least is None else [_in_two_lines(console, cell, rest) for cell in one.cells]
        for one in shown
    ]
    for row in zip(*cells, strict=True):
        table.add_row(*row)
    console.print(table)
    left_out = [column.title for column in columns if column not in shown]
    if left_out:
        console.print(f"A wider terminal shows more: {', '.join(left_out)}.")


def show_results(tables: Sequence[ResultTable]) -> None:
    """Prints tables of results with their notes; a narrow terminal leaves out their last columns."""
    from ragguard.analysis.wording import as_markup

    console = screen()
    for table in tables:
        console.print(f"[bold]{as_markup(table.title)}[/]")
        columns = []
        for place, title in enumerate(table.columns):
            cells = [as_markup(table.shown(row[place])) for row in table.rows]
            columns.append(Column(as_markup(title), cells, right=place > 0, spare=place))
        if table.rows:
            show_table(console, "", columns)
        for note in (f"Layout: {table.source}.", *table.notes) if table.source else table.notes:
            console.print(f"  {as_markup(note)}")


def _needed(column: Column) -> int:
    """Returns the width that a column needs, with its margin."""
    return 3 + (
        column.least or max(Text.from_markup(cell).cell_len for cell in (column.title, *column.cells))
    )


def _in_two_lines(console: Console, cell: str, width: int) -> Text:
    """Returns a cell in at most two lines of the width; one that is cut ends in "…"."""
    lines = list(Text.from_markup(cell).wrap(console, max(1, width)))
    if len(lines) > 2:
        del lines[2:]
        lines[1].truncate(width - 1)
        lines[1].rstrip()
        lines[1].append("…")
    return Text("\n").join(lines)


LabelFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--labels", help="A file of people's labels, as `ragguard label` writes it."),
]
