"""Copies of metadata: plain, bounded, whatever the values are and do."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath

import numpy as np
import pytest

from ragguard.text.plain import CUT, METADATA, PlainLimits, plain_metadata


class Node(dict):
    """As document trees have them: every link leads back to itself."""


def a_cycle():
    node = Node(title="the chapter")
    node |= {"parent": node, "root": node, "children": [node, node, node]}
    return node


@dataclass
class Source:
    title: str
    page: int


class Colour(Enum):
    RED = 1


class Raises(Mapping):
    """A lazy record of which one field cannot be loaded."""

    def __iter__(self):
        return iter(("good", "bad", "last"))

    def __len__(self):
        return 3

    def __getitem__(self, key):
        if key == "bad":
            raise RuntimeError("connection lost")
        return key


class Changes(Mapping):
    """Another thread adds a key while it is read."""

    def __iter__(self):
        yield "first"
        raise RuntimeError("dictionary changed size during iteration")

    def __len__(self):
        return 2

    def __getitem__(self, key):
        return key


class Unprintable:
    def __str__(self):
        raise SystemExit("not today")


def test_a_reference_cycle_is_cut_where_it_closes_and_said():
    made = plain_metadata({"node": a_cycle()})
    assert made["node"]["title"] == "the chapter"
    assert "a reference cycle" in made["node"]["parent"]
    assert made[CUT] == "node: a reference cycle"
    assert len(json.dumps(made)) < 2000


def test_shared_parts_do_not_multiply():
    tree: object = "leaf"
    for _ in range(40):
        tree = [tree, tree]
    made = plain_metadata({"tree": tree}, PlainLimits(depth=100))
    assert len(json.dumps(made)) < 200_000
    assert "over" in made[CUT]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([0] * (METADATA.breadth + 1), "over 256 items"),
        ({str(n): n for n in range(METADATA.breadth + 1)}, "over 256 items"),
        ([[0] * 200 for _ in range(200)], "over 2048 values"),
        ("x" * (METADATA.characters + 1), "65537 characters"),
        (["x" * 40_000, "y" * 40_000], "40000 characters"),
        (np.zeros(1536), "an array of 1536 numbers"),
        (Raises(), "unreadable: RuntimeError"),
        (Changes(), "unreadable: RuntimeError"),
        (Unprintable(), "unreadable: SystemExit"),
    ],
)
def test_copy_names_the_values_that_it_left_out(value, why):
    made = plain_metadata({"before": 1, "value": value, "after": 2})
    assert (made["before"], made["after"]) == (1, 2)
    assert why in made[CUT]
    assert len(json.dumps(made)) < 2 * METADATA.characters


def test_depth_has_an_end():
    deep: object = 1
    for _ in range(5000):
        deep = {"in": deep}
    assert "over 8 levels" in plain_metadata({"deep": deep})[CUT]


def test_unreadable_field_costs_no_other_field():
    made = plain_metadata({"row": Raises(), "after": 1})
    assert made == {
        "row": "<Raises: unreadable: RuntimeError>",
        "after": 1,
        CUT: "row: unreadable: RuntimeError",
    }
    assert plain_metadata(Raises()) == {
        "good": "good",
        "last": "last",
        CUT: "bad: unreadable: RuntimeError",
    }
    assert plain_metadata(Changes())["first"] == "first"
    assert plain_metadata({Unprintable(): 1, "after": 2}) == {"after": 2, CUT: "unreadable: SystemExit"}


@pytest.mark.parametrize(
    ("value", "made"),
    [
        ({"b"}, ["b"]),
        (deque(["a", 1]), ["a", 1]),
        (b"caf\xc3\xa9", "café"),
        (b"\xff\xfe", "<bytes: 2>"),
        (PurePosixPath("/a/b"), "/a/b"),
        (Source("T", 3), {"title": "T", "page": 3}),
        (ValueError("no", 7), "('no', 7)"),
        (np.str_("text"), "text"),
        (np.int64(3), 3),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.float32(0.5), 0.5),
        (float("nan"), None),
        (Decimal("1.5"), "1.5"),
        (Colour.RED, "Colour.RED"),
        (10**5000, "an integer of 16610 bits"),
        ({"a": {"b": ("c", None)}}, {"a": {"b": ["c", None]}}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_become_what_json_can_hold(value, made):
    assert plain_metadata({"value": value, "other": [1]}) == {"value": made, "other": [1]}
    json.dumps(plain_metadata({"value": value}), allow_nan=False)


def test_texts_are_changed_before_they_are_cut_keys_too():
    made = plain_metadata(
        {"Ada": ["x" * 80, b"by Ada"]}, PlainLimits(characters=12), lambda text: text.replace("Ada", "A.")
    )
    assert made == {"A.": ["x" * 64 + "…", "by A."], CUT: "A.: 80 characters"}
