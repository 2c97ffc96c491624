"""The rows of a table of results."""

from __future__ import annotations

from ragguard.analysis.tables import Cell, Table


def rows_of(table: Table) -> dict[Cell, dict[str, Cell]]:
    """Returns each row by its first cell, as its cells by their columns."""
    return {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
