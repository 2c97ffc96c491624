"""The examples of docs/how-to/validation.md and validation-data.md can be read."""

import re
from pathlib import Path

from ragguard.lab.validation.dataset import read_dataset
from ragguard.lab.validation.entailers import read_pairs

PAGES = Path(__file__).parents[3] / "docs" / "how-to"


def test_the_lines_on_the_pages_are_a_run_with_an_outcome_and_a_pair(tmp_path):
    text = "".join((PAGES / name).read_text() for name in ("validation.md", "validation-data.md"))
    line, pair = re.findall(r"```json\n(.*?)\n```", text, re.DOTALL)
    (tmp_path / "runs.jsonl").write_text(line + "\n")
    (found,) = read_dataset(tmp_path / "runs.jsonl")
    assert (found.outcome, found.relevance) == (2.0, (1.0, 0.0))
    (tmp_path / "pairs.jsonl").write_text(pair + "\n")
    assert read_pairs(str(tmp_path / "pairs.jsonl"))[0][1] == "entailment"
