"""Splitters: one string of a tool, taken apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragguard.capture import splitters
from ragguard.errors import InvalidInput
from ragguard.records import Passage


@pytest.mark.parametrize(
    ("splitter", "text", "parts"),
    [
        (splitters.whole, "a\n\nb", ["a\n\nb"]),
        (splitters.whole, "  ", []),
        (splitters.paragraphs, "a\nb\n\nc\n \t\n\n d", ["a\nb", "c", "d"]),
        (splitters.paragraphs, "", []),
        (splitters.lines, "a\n\n b \nc", ["a", "b", "c"]),
        (splitters.numbered, "Found:\n1. a\nmore\n2) b\n [3] c\n(4) d", ["a\nmore", "b", "c", "d"]),
        (splitters.numbered, "no list", ["no list"]),
        (splitters.separated_by("---"), "a---b\n---\n", ["a", "b"]),
        (splitters.tagged("doc"), 'x<doc id="1">a</doc>y<doc>b</doc>', ["a", "b"]),
        (splitters.tagged("doc"), "<doc>a<doc>b", ["a", "b"]),
        (splitters.tagged("doc"), "<docs>a</docs>", []),
    ],
)
def test_the_usual_ones(splitter, text, parts):
    assert list(splitter(text)) == parts


@pytest.mark.parametrize(
    ("text", "passages"),
    [
        ('["a", "b"]', [Passage("a"), Passage("b")]),
        (
            '{"query": "q", "results": [{"url": "u", "content": "c", "score": 0.5}]}',
            [Passage("c", "u", 0.5, {"url": "u", "score": 0.5})],
        ),
        (
            '[{"id": 3, "text": "t", "metadata": {"page": 2}}]',
            [Passage("t", "3", None, {"id": 3, "page": 2})],
        ),
        ('{"text": "alone"}', [Passage("alone")]),
        ('[{"n": 1}, 7]', [Passage('{"n": 1}', metadata={"n": 1}), Passage("7")]),
        ("[]", []),
    ],
)
def test_json(text, passages):
    assert splitters.json_items(text) == passages


def test_text_that_is_no_json_raises_for_the_recorder_to_note():
    with pytest.raises(ValueError):
        splitters.json_items("not json")


@pytest.mark.parametrize("separator", ["", None, 3])
def test_a_separator_must_be_a_text(separator):
    with pytest.raises(InvalidInput, match="separator"):
        splitters.separated_by(separator)


@pytest.mark.parametrize("name", ["", "<doc>", "a b", None])
def test_a_tag_must_be_a_name(name):
    with pytest.raises((InvalidInput, TypeError)):
        splitters.tagged(name)


@given(st.text())
def test_no_text_breaks_them_and_nothing_is_invented(text):
    for split in (splitters.paragraphs, splitters.lines, splitters.numbered, splitters.tagged("d")):
        for part in split(text):
            assert part
            assert part in text


@pytest.mark.parametrize("hostile", ["\n \t", "<d ", "1. ", "[1"])
def test_hostile_texts_take_linear_time(hostile):
    """Quadratic time would be hours: the limit that every test has would end it."""
    hostile *= 500_000
    for split in (splitters.paragraphs, splitters.lines, splitters.numbered, splitters.tagged("d")):
        list(split(hostile))
