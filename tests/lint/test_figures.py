"""Every figure that a page quotes from a benchmark is that of the record, and every page says which field it quotes."""

import re

import pytest
from support.figures import PAGES, ROOT, computed, is_same, quoted, read, stands_in

NAMED = re.compile(r"<!-- figures: |not recorded|bench-comparison|bench-belief_errors|<!-- capture -->")
"""What says where figures are from; those of comparisons and of beliefs' errors are compared by test_study_numbers.py,
those of capture written by docs/generate.py."""
MENTIONED = re.compile(r"make bench-(\w+)|benchmarks/(?:results/)?(\w+)\.(?:py|json)|`bench-(\w+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_quoted_figures_are_those_of_the_record(page):
    for one in quoted(page):
        value = computed(read(one.record), one.expression)
        assert is_same(one.figure, value), f"{one.figure}, recorded as {value}: {one.record} {one.expression}"
        assert stands_in(one.text, one.figure), f"{one.figure} is not in the text before {one.record}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_benchmark_measured_names_its_field_or_says_that_it_is_not_recorded(page):
    for section in re.split(r"^#", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
        if MENTIONED.search(section) and re.search(r"\d", MENTIONED.sub("", section)):
            assert NAMED.search(section), section.partition("\n")[0]


def test_a_figure_that_is_not_the_recorded_one_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Heading\n\nBut 1,200.\n\n<!-- figures: guard.json\n1,200 0.3 = /helps/{cases|retrievals}\n-->\n"
    )
    cases, retrievals = quoted(page)
    assert (cases.figure, cases.expression, retrievals.expression) == (
        "1,200",
        "/helps/cases",
        "/helps/retrievals",
    )
    assert is_same("1,200", computed(read("guard.json"), cases.expression))
    assert not is_same("1,201", 1200)
    assert stands_in(cases.text, "1,200")
    assert not stands_in(cases.text, "200")
    assert is_same("21%", 0.2113)
    assert is_same("−0.04", -0.044)
    assert computed({"a": [{"b": 1}, {"b": 3}]}, "max /a/*/b") == 3
    assert computed({"a": 2, "b": 8}, "/b ÷ /a") == 4
