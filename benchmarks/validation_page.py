"""The tables of `docs/validation.md`, from what `benchmarks/validation.py` has measured.

python benchmarks/validation_page.py     puts them between the page's markers
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from ragguard.engines.connect import connect
from ragguard.validate.correlations import measured, tables
from ragguard.validate.readers.dataset import read_dataset
from ragguard.validate.scoring import score_contexts
from ragguard.validate.tables import Table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "validation.md"
EXAMPLE = ROOT / "examples" / "contexts.jsonl"
_BLOCK = re.compile(r"<!-- study: (\w+) -->\n.*?<!-- /study -->", re.DOTALL)
_EXAMPLE = re.compile(r"<!-- example -->\n.*?<!-- /example -->", re.DOTALL)


def page(text: str) -> str:
    """The page with the tables that are kept now, and those of the example."""
    text = _EXAMPLE.sub(lambda _: f"<!-- example -->\n{example()}<!-- /example -->", text)
    return _BLOCK.sub(lambda found: block(found.group(1)), text)


def example() -> str:
    """The tables of the example, as the command on the page writes them."""
    contexts = read_dataset(EXAMPLE)
    scored = asyncio.run(score_contexts(contexts, connect("nano")))
    return "\n".join(table.markdown() for table in tables(measured(scored)))


def block(study: str) -> str:
    """A study's tables between their markers."""
    kept = json.loads((ROOT / "benchmarks" / "results" / f"validation-{study}.json").read_text())
    machine = kept["machine"]
    told = (
        f"{kept['questions']:,} questions, seed {kept['seed']}, engine `{kept['engine']}`, {kept['seconds']:.0f} s on "
        f"{machine['cores']} cores of {machine['processor']}, {kept['measured']}."
    )
    tables = "\n".join(table_of(data).markdown() for data in kept["tables"])
    return f"<!-- study: {study} -->\n{told}\n\n{tables}<!-- /study -->"


def table_of(data: dict[str, Any]) -> Table:
    """A table as it was kept."""
    return Table(
        data["name"], data["title"], tuple(data["columns"]), tuple(tuple(row) for row in data["rows"]),
        data["source"], tuple(data["notes"]), data.get("digits", 3),
    )  # fmt: skip


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    print(PAGE.relative_to(ROOT))
