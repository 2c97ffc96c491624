"""docs/validation.md shows what was measured, and its own example can be read."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.validation_page import PAGE, page  # noqa: E402
from ragguard.cli.validate import STUDIES  # noqa: E402
from ragguard.validate.readers.contexts import KNOWN  # noqa: E402
from ragguard.validate.readers.dataset import FORMATS, read_dataset  # noqa: E402


def test_the_page_holds_the_tables_that_were_measured():
    text = PAGE.read_text()
    assert page(text) == text, "run `python benchmarks/validation_page.py`"
    assert re.findall(r"<!-- study: (\w+) -->", text) == list(STUDIES)


def test_the_line_on_the_page_is_a_context(tmp_path):
    (line,) = re.findall(r"```json\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "c.jsonl").write_text(line + "\n")
    (found,) = read_dataset(tmp_path / "c.jsonl")
    assert (found.outcome, found.relevance) == (2.0, (1.0, 0.0))
    assert json.loads(line).keys() <= KNOWN


@pytest.mark.parametrize("name", [*sorted(KNOWN), *FORMATS])
def test_every_field_and_format_is_on_the_page(name):
    assert f"`{name}`" in PAGE.read_text()
