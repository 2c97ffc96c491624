"""The pages `docs/studies/NAME.md`: hand-written text, and between markers the tables that were kept."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragguard.analysis.tables import Table
from studies.figures import FIGURES, draw

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "studies"
RESULTS = Path(__file__).parent / "results"
_BLOCK = re.compile(r"<!-- study: (\w+) -->\n.*?<!-- /study -->", re.DOTALL)


def keep(name: str, figures: Mapping[str, Any]) -> None:
    """Writes a study's figures to `results/NAME.json`."""
    text = json.dumps(figures, indent=2, ensure_ascii=False) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")


def write_page(name: str) -> Path:
    """Puts the tables that are kept into a study's page, draws its figures, and returns the page's path."""
    path = PAGES / f"{name}.md"
    for study in _BLOCK.findall(path.read_text(encoding="utf-8")):
        for table in kept_results(study)["tables"]:
            draw(table)
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
    return path.relative_to(ROOT)


def has_place(name: str, key: str) -> bool:
    """Returns whether a study's page has a place for the results of this name."""
    return f"<!-- study: {key} -->" in (PAGES / f"{name}.md").read_text(encoding="utf-8")


def page(text: str) -> str:
    """Returns a page with the tables that are kept now."""
    return _BLOCK.sub(lambda found: block(found.group(1)), text)


def kept_results(study: str) -> Any:
    """Returns the figures that are kept of a study."""
    return json.loads((RESULTS / f"{study}.json").read_text(encoding="utf-8"))


def _figure(data: Mapping[str, Any]) -> str:
    return f"\n![{data['title']}](figures/{data['name']}.svg)\n" if data["name"] in FIGURES else ""


def block(study: str) -> str:
    """Returns a study's tables between their markers."""
    kept = kept_results(study)
    machine, seconds = kept["machine"], kept["seconds"]
    took = "in parts, on " if seconds is None else f"{seconds:.0f} s on "
    header = (
        f"{kept['questions']:,} questions, seed {kept['seed']}, engine `{kept['engine']}`, {took}"
        f"{machine['cores']} cores of {machine['processor']}, {kept['measured']}."
    )
    tables = "\n".join(_table(data).markdown() + _figure(data) for data in kept["tables"])
    return f"<!-- study: {study} -->\n{header}\n\n{tables}<!-- /study -->"


def _table(data: Mapping[str, Any]) -> Table:
    return Table(
        data["name"], data["title"], tuple(data["columns"]), tuple(tuple(row) for row in data["rows"]),
        source=data["source"], notes=tuple(data["notes"]), digits=data.get("digits", 3),
    )  # fmt: skip
