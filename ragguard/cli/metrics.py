"""`ragguard metrics`: the table of every metric, from the declarations."""

from __future__ import annotations

from typing import Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from ragguard.analysis.comparison import PRIMARY
from ragguard.cli.terminal import say, screen
from ragguard.metrics import find
from ragguard.metrics.registry import by_level


def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="The metrics to print; without a name, the four that decide a comparison."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Print every metric.")] = False,
) -> None:
    """Print what metrics say: range, direction, unit, what each needs, its paper.

    Exit code 0: printed. 2: no such metric; it names the nearest.
    """
    known = [find(name) for name in names] if names else by_level()
    shown = known if names or every else [find(group[0]) for group in PRIMARY]
    _show([metric.cells() for metric in shown])
    if len(shown) < len(known) and not names:
        say(f"{len(known) - len(shown)} more: --all; one: ragguard metrics NAME")


def _show(rows: list[dict[str, str]]) -> None:
    """Prints the metrics in three columns, which fit into a narrow terminal."""
    table = Table(box=box.SIMPLE_HEAD, show_lines=True, pad_edge=False)
    table.add_column("name", overflow="fold")
    table.add_column("range, better, score of a", min_width=21)
    table.add_column("what it says, what it needs, its source", ratio=1)
    for row in rows:
        table.add_row(
            escape(row["name"].replace(" (", "\n(")),
            escape(f"{row['range']}\n{row['better']}\n{row['score of a']}"),
            escape(f"{row['what it says']}\nneeds {row['needs']}\nfrom {row['from']}"),
        )
    screen().print(table)
