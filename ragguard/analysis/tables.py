"""Tables of results, shown as Markdown and written as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
        parts = [f"### {self.title}\n", f"Layout: {self.source}.\n" if self.source else ""]
        if self.rows:
            lines = [_line(self.columns), _line(["---"] + ["---:"] * (len(self.columns) - 1))]
            lines += [_line([self.shown(cell) for cell in row]) for row in self.rows]
            parts.append("".join(f"{line}\n" for line in lines))
        parts.append("".join(f"- {note}\n" for note in self.notes))
        return "\n".join(filter(None, parts))

    def as_dict(self) -> dict[str, Any]:
        """Returns the table as plain data for JSON."""
        return asdict(self) | {"rows": [[_plain(cell) for cell in row] for row in self.rows]}

    def shown(self, cell: Cell) -> str:
        """Returns a cell as text."""
        if isinstance(cell, str):
            return cell
        if cell is None or not math.isfinite(cell):
            return "–"
        return str(cell) if isinstance(cell, int) else f"{cell:z.{self.digits}f}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _plain(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell
