"""Figures of the studies' pages: SVG files drawn from tables that were kept, by matplotlib.

A file names the digest of the table that it shows, so that a test can tell whether it is that of today.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[1] / "docs" / "studies" / "figures"


class Figure(NamedTuple):
    """The way a table becomes a figure."""

    y: str
    """The name of the numbers."""
    series: Sequence[str]
    """The columns that are drawn, each with `low` and `high` behind it where `dots` is true."""
    dots: bool = False
    """True for a dot with its interval for each row and series; False for a line over the first column."""


FIGURES: Mapping[str, Figure] = {
    "belief-samples": Figure(
        "Pearson correlation with the worth", ("1 hop, soft", "1 hop, hard", "2 hops, soft", "2 hops, hard")
    ),
    "distraction-lengths": Figure(
        "Spearman with the outcome", ("NDCG@K", "MRR", "MAP", "PREC", "HITS", "UDCG")
    ),
    "distractors-position": Figure("right answers, %", ("correct, %",)),
    "retrieval-gains": Figure("ΔSePer", ("ΔSePer",), dots=True),
    "sets-alpha": Figure("correlation with the grade", ("Parts: T", "Hops: T", "Statements: T", "Hard: T")),
    "likelihood-methods": Figure("AUC", ("1 hop", "1 hop, known", "2 hops"), dots=True),
}
"""The figures, by the table's name."""


def digest(table: Mapping[str, Any]) -> str:
    """Returns the digest of the rows that a figure shows."""
    return hashlib.sha256(json.dumps([table["columns"], table["rows"]]).encode()).hexdigest()[:16]


def draw(table: Mapping[str, Any]) -> Path | None:
    """Draws a table's figure; returns its file, or None for a table without one. Needs matplotlib."""
    figure = FIGURES.get(table["name"])
    if figure is None:
        return None
    import matplotlib  # type: ignore[import-not-found, unused-ignore]

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": table["name"], "font.size": 9})
    from matplotlib import pyplot as plt  # type: ignore[import-not-found, unused-ignore]

    columns, rows = list(table["columns"]), list(table["rows"])
    series = [name for name in figure.series if name in columns]
    tall = 0.9 + 0.22 * len(rows) * len(series) if figure.dots else 3.2
    picture, axes = plt.subplots(figsize=(6.4, tall), layout="constrained")
    for number, name in enumerate(series):
        at = columns.index(name)
        if not figure.dots:
            kept = [row for row in rows if row[at] is not None and str(row[0]).replace(".", "").isdigit()]
            axes.plot([float(row[0]) for row in kept], [row[at] for row in kept], marker=".", label=name)
            continue
        for place, (_, *cells) in enumerate(rows):
            value, low, high = cells[at - 1 : at + 2]
            if value is not None:
                axes.errorbar(
                    value, place + 0.22 * number, xerr=[[max(0, value - low)], [max(0, high - value)]], fmt="o",
                    color=f"C{number}", markersize=4, label=name if not place else None,
                )  # fmt: skip
    if figure.dots:
        axes.set_yticks(range(len(rows)), [str(row[0]) for row in rows])
        axes.invert_yaxis()
        axes.set_xlabel(figure.y)
    else:
        axes.set_xlabel(columns[0])
        axes.set_ylabel(figure.y)
    if len(series) > 1:
        axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{table['name']}.svg"
    picture.savefig(path, metadata={"Date": None, "Description": digest(table)})
    plt.close(picture)
    return path
