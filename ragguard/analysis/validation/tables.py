"""Tables of results, shown as Markdown and written as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Cell = str | float | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns. A number that does not exist is None and is shown as a dash."""

    name: str
    """A short name for programs, such as `udcg-correlations`."""
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    source: str = ""
    """The table or figure of a paper that has the same layout."""
    notes: tuple[str, ...] = ()
    """How the numbers were made, and where and why they differ from the paper's."""
    digits: int = 3

    def markdown(self) -> str:
        """Returns the table as Markdown."""
        head = f"### {self.title}\n\n" + (f"Layout: {self.source}.\n\n" if self.source else "")
        lines = [_line(self.columns), _line(["---"] + ["---:"] * (len(self.columns) - 1))]
        lines += [_line([self.shown(cell) for cell in row]) for row in self.rows]
        notes = "".join(f"\n- {note}" for note in self.notes)
        return head + "\n".join(lines) + "\n" + (f"{notes}\n" if notes else "")

    def as_dict(self) -> dict[str, Any]:
        """Returns the table as plain data for JSON."""
        return {
            "name": self.name, "title": self.title, "source": self.source, "columns": list(self.columns),
            "rows": [[_plain(cell) for cell in row] for row in self.rows], "notes": list(self.notes),
            "digits": self.digits,
        }  # fmt: skip

    def shown(self, cell: Cell) -> str:
        """Returns a cell as text."""
        if isinstance(cell, str):
            return cell
        if cell is None or not math.isfinite(cell):
            return "–"
        return str(cell) if isinstance(cell, int) else f"{cell:.{self.digits}f}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _plain(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell
