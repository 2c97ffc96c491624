"""The examples of docs/how-to/validation-data.md can be read, and every field and format stands there."""

import json
import re
from pathlib import Path

import pytest

from ragguard.analysis.validation.dataset import FORMATS, KNOWN, read_dataset
from ragguard.analysis.validation.entailers import read_pairs

ROOT = Path(__file__).parents[3]
PAGE, DATA = ROOT / "docs" / "how-to" / "validation.md", ROOT / "docs" / "how-to" / "validation-data.md"


def test_the_lines_on_the_page_are_a_context_and_a_pair(tmp_path):
    line, pair = re.findall(r"```json\n(.*?)\n```", PAGE.read_text() + DATA.read_text(), re.DOTALL)
    (tmp_path / "c.jsonl").write_text(line + "\n")
    (found,) = read_dataset(tmp_path / "c.jsonl")
    assert (found.outcome, found.relevance) == (2.0, (1.0, 0.0))
    assert json.loads(line).keys() <= KNOWN
    (tmp_path / "p.jsonl").write_text(pair + "\n")
    assert read_pairs(str(tmp_path / "p.jsonl"))[0].relation == "entailment"


@pytest.mark.parametrize("name", [*sorted(KNOWN), *FORMATS])
def test_every_field_and_format_is_on_the_page(name):
    assert f"`{name}`" in DATA.read_text()
