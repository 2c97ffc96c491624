"""Snapshots: whatever a retriever gives is recorded as what it is, and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from ragguard.capture.snapshot import LOST, metadata_of, passage_of, passages_of, score_of, text_of
from ragguard.records import CONTENT_KIND, CUT_PASSAGES, Passage
from ragguard.text.plain import CUT


@dataclass
class Document:
    page_content: object
    id: object = None
    metadata: object = field(default_factory=dict)


class Hostile(Mapping):
    def __getitem__(self, key):
        raise RuntimeError("no")

    def __iter__(self):
        raise RuntimeError("no")

    def __len__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        (None, []),
        ([], []),
        ("one text", ["one text"]),
        (["a", "b"], ["a", "b"]),
        (("a", Passage("b")), ["a", "b"]),
        (Passage("a"), ["a"]),
        ({"text": "a"}, ["a"]),
        ([{"page_content": "a"}, {"content": "b"}], ["a", "b"]),
        (Document("a"), ["a"]),
        ([Document("a"), SimpleNamespace(text="b")], ["a", "b"]),
        ((text for text in "ab"), ["a", "b"]),
        ([b"bytes", 12, None], ["", "", ""]),
        (12, [""]),
    ],
)
def test_whatever_comes_has_a_reading(given, texts):
    assert [passage.text for passage in passages_of(given)] == texts


def test_the_copy_does_not_follow_the_original():
    original = Passage("text", "1", 0.5, {"page": 1}, 4)
    (copy,) = passages_of([original])
    original.metadata["page"] = 2
    original.text = "changed"
    assert copy == Passage("text", "1", 0.5, {"page": 1}, 4)


def test_ids_of_any_type_are_texts():
    assert passage_of(Document("a", id=7)).id == "7"
    assert passage_of(Document("a")).id == ""
    assert passage_of({"text": "a", "id": 0}).id == "0"


@pytest.mark.parametrize(
    ("score", "metadata", "expected"),
    [
        (0.5, {}, 0.5),
        (None, {"score": 1}, 1.0),
        (None, {"relevance_score": 0.25, "score": 9}, 0.25),
        (np.float32(0.5), {}, 0.5),
        (None, {"score": "high"}, None),
        (None, {"score": True}, None),
        (None, {"score": [1, 2]}, None),
        (None, {}, None),
    ],
)
def test_the_retrievers_own_score_is_found_where_it_is(score, metadata, expected):
    assert score_of(score, metadata) == expected


@pytest.mark.parametrize(
    ("content", "text", "kind"),
    [
        ("plain", "plain", ""),
        (None, "", "none"),
        (b"bytes", "", "bytes"),
        ([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": "x"}], "a", "image_url"),
        ([{"type": "image", "data": "x"}, {"type": "image", "data": "y"}], "", "image"),
        (["a", {"type": "text", "text": "b"}], "a\nb", ""),
        ({"type": "audio"}, "", "audio"),
        ([3], "", "int"),
        ([], "", ""),
    ],
)
def test_content_is_text_and_what_else_it_was(content, text, kind):
    assert text_of(content) == (text, kind)


def test_a_passage_without_text_says_what_it_was():
    assert passage_of(Document([{"type": "image", "data": "x"}])).metadata == {CONTENT_KIND: "image"}


@pytest.mark.parametrize("metadata", [Hostile(), 12, "page 3", [1, 2]])
def test_metadata_that_cannot_be_copied_says_so(metadata):
    assert list(metadata_of(metadata)) == [LOST]


class Sealed:
    @property
    def text(self):
        raise OSError("gone")


@pytest.mark.parametrize("given", [Sealed(), [Sealed()]])
def test_value_that_raises_when_read_is_described(given):
    (passage,) = passages_of(given)
    assert "unreadable" in passage.metadata[CONTENT_KIND]


def test_no_metadata_is_none():
    assert metadata_of(None) == metadata_of({}) == {}


def test_mapping_of_many_entries_is_copied_as_far_as_it_is_kept():
    many = {f"key {number}": number for number in range(50_000)}
    copied = metadata_of(many)
    assert len(copied) == 256
    assert copied["key 0"] == 0
    assert copied[CUT] == "the first 255 of 50,000 entries only"


def test_passages_beyond_a_thousand_are_left_out_and_that_is_said():
    found = passages_of(f"passage {number}" for number in range(10**9))
    assert len(found) == 1000
    assert found[-1].metadata[CUT_PASSAGES] == "the first 1,000 passages"
    assert CUT_PASSAGES not in found[0].metadata
    found = passages_of(["passage"] * 1500)
    assert found[-1].metadata[CUT_PASSAGES] == "the first 1,000 of 1,500 passages"


@pytest.mark.parametrize(
    ("given", "kind"), [([1, 2], "int"), ({"body": "x"}, "dict"), (7, "int"), ([None], "NoneType")]
)
def test_what_holds_no_text_is_warned_about_once_with_what_is_allowed(given, kind, caplog):
    assert {one.text for one in passages_of(given)} == {""}
    (warned,) = [one.getMessage() for one in caplog.records if one.name == "ragguard"]
    assert warned.startswith(f"passages: got {kind} without a text; allowed: Passages, texts,")


@pytest.mark.parametrize(
    "given", [["a text"], [{"type": "image", "url": "x"}], [{"text": ""}], [Passage("")]]
)
def test_a_text_an_image_and_an_empty_text_are_not_warned_about(given, caplog):
    passages_of(given)
    assert not caplog.messages
