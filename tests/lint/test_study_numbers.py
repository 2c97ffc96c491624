"""The hand-written part of a study's page says no number that its results do not have.

Each number with a fraction or a percent sign must be one of the results, rounded as the page rounds it, or stand in a
table's notes or in the name of a row, as settings do. The paper's own numbers, and those that no file records, stand in
brackets that say so.
"""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "studies").glob("*.md"))
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?: %| of 100)?")
OF_THE_PAPER = re.compile(r"\([^()]*(?:the paper|not recorded)[^()]*\)|in the\s+paper \d[^,;)]*")
LINK = re.compile(r"\]\([^)]*\)")


def tables_of(page):
    """Returns the tables of all results that stand on a page."""
    text = (ROOT / "docs" / "studies" / f"{page}.md").read_text()
    return [
        table for study in re.findall(r"<!-- study: (\w+) -->", text) for table in results_of(study)["tables"]
    ]


def results_of(study):
    return json.loads((ROOT / "studies" / "results" / f"{study}.json").read_text())


def numbers_in(value):
    """Yields every number within plain data."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from numbers_in(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def written(text):
    """Returns the hand-written statements of a page about its own results."""
    statements = text.partition("## What is not done")[0].partition("<!-- study:")[0]
    return LINK.sub("]", OF_THE_PAPER.sub("", statements))


def unknown_numbers(statements, tables):
    """Returns the numbers of a text that no table has, as they stand there."""
    measured = [abs(number) for table in tables for number in numbers_in(table["rows"])]
    labels = [str(row[0]) for table in tables for row in table["rows"]]
    notes = " ".join([note for table in tables for note in table["notes"]] + labels)
    unknown = []
    for match in NUMBER.finditer(statements):
        digits, _, unit = match[0].partition(" ")
        if "." not in digits and not unit:
            continue  # a count, such as of questions
        places = len(digits.partition(".")[2])
        scales = (1, 100) if unit else (1,)
        same = any(f"{number * scale:.{places}f}" == digits for number in measured for scale in scales)
        if not same and digits not in notes:
            unknown.append(match[0])
    return unknown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_numbers_of_a_page_are_in_its_results(page):
    found = unknown_numbers(written(page.read_text()), tables_of(page.stem))
    assert not found


def test_what_the_readme_says_it_is_worth_is_in_the_results():
    section = (ROOT / "README.md").read_text().partition("## What it is worth")[2].partition("\n## ")[0]
    assert not unknown_numbers(LINK.sub("]", section), tables_of("real") + tables_of("credit"))


def test_the_error_rate_of_comparisons_is_the_measured_one():
    results = json.loads((ROOT / "benchmarks" / "results" / "comparison.json").read_text())
    rows = results["rows"]
    alike = [row for row in rows if row[0].startswith("alike")]
    called = [100 * row[3] for row in alike]
    exponential = [100 * row[3] for row in rows if row[0] == "skewed, exponential"]
    many = max(100 * row[3] for row in rows if row[0].startswith("skewed") and row[2] >= 60)
    page = " ".join((ROOT / "docs" / "tutorial" / "compare.md").read_text().split())
    for sentence in (
        f"in {min(called):.1f} to {max(called):.1f} % of the pairs",
        f"a gate failed in at most {max(100 * row[5] for row in alike):.1f} %",
        f"{min(exponential):.1f} to {max(exponential):.1f} % for exponential ones, and at most {many:.1f} %",
        "in {:.0f} % of the pairs at 100 questions and in {:.0f} % at 200".format(
            *(100 * found for found, _ in results["power"].values())
        ),
        "in {:.0f} % and {:.0f} %".format(*(100 * best for _, best in results["power"].values())),
    ):
        assert sentence in page


def test_the_errors_of_beliefs_are_the_measured_ones():
    results = json.loads((ROOT / "benchmarks" / "results" / "belief_errors.json").read_text())
    rows = [
        row for rows in results["sets"].values() for row in rows if "hard" in row[0] or "entropy" in row[0]
    ]
    ratios, held = [row[2] for row in rows], [100 * row[3] for row in rows]
    page = " ".join((ROOT / "docs" / "concepts.md").read_text().split())
    assert f"were {min(ratios):.2f} to {max(ratios):.2f} times the real spread" in page
    assert f"{min(held):.0f} to {max(held):.0f} % of the 95 % intervals" in page


def test_a_number_that_was_not_measured_is_found():
    tables = [{"rows": [["a", 0.8765], ["b", None]], "notes": ["at 3.5 of 5"]}]
    assert unknown_numbers("0.88, 88 %, 3.5, and 7 questions", tables) == []
    assert unknown_numbers("0.87, 89 %", tables) == ["0.87", "89 %"]
