"""The parts of an answer that names several things."""

import pytest

from ragguard.text.statements.parts import parts_of


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("North Kelmere and potter", ["North Kelmere", "potter"]),
        ("Dmitri Falk & Elena Marsh.", ["Dmitri Falk", "Elena Marsh"]),
        ("Oslo; 1905", ["Oslo", "1905"]),
        ("Oslo / Bergen", ["Oslo", "Bergen"]),
        ("Oslo/Bergen", ["Oslo", "Bergen"]),
        ("Oslo; Bergen, and Moss", ["Oslo", "Bergen", "Moss"]),
        ("North Kelmere", []),
        ("1/2", []),
        ("Andy Sand", []),
        ("yes and Oslo", []),  # "yes" stands in passages by chance
        ("She left the town of Oslo and went to the town of Bergen in 1905", []),
        ("", []),
        (";", []),
    ],
)
def test_a_short_text_is_divided_where_it_joins_things(text, parts):
    assert parts_of(text) == parts
