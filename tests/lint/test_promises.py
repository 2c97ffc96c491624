"""docs/reference/promises.md names a test for each promise; each of those exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "promises.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED)), ids=lambda part: part)
def test_a_test_that_shows_a_promise_exists(path, name):
    assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


def test_every_promise_names_one():
    rows = [
        line for line in PAGE.splitlines() if line.startswith("|") and not line.startswith(("|--", "| ---"))
    ]
    promises = [row for row in rows if "What holds" not in row and "---" not in row]
    assert len(promises) > 20
    assert [row for row in promises if "`tests/" not in row] == []


def test_no_sentence_is_longer_than_forty_words():
    lines = re.sub(r"\n  (?=\S)", " ", PAGE).splitlines()
    promises = [line.partition(" | `tests/")[0].strip("|- ") for line in lines]
    sentences = [sentence for text in promises for sentence in re.split(r"(?<=[.!?])\s+", text)]
    assert [sentence for sentence in sentences if len(sentence.split()) > 40] == []
