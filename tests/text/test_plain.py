"""Copies of metadata: plain, bounded, whatever the values are and do."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from decimal import Decimal
from pathlib import PurePosixPath

import numpy as np
import pytest
from support.hostile_values import Colour, Growing, Point, Unprintable, a_cycle

from ragguard.text.plain import CUT, FIELDS, plain_metadata


def doubled(times):
    tree: object = "leaf"
    for _ in range(times):
        tree = [tree, tree]
    return tree


def nested(levels):
    deep: object = 1
    for _ in range(levels):
        deep = {"in": deep}
    return deep


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


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (a_cycle(), "value: over 40 levels"),
        (doubled(40), "value: too large"),
        (nested(5000), "value: over 40 levels"),
        ([0] * 65_536, "value: too large"),
        (np.zeros((300, 300)), "value: an array of 90000 numbers"),
        (["x" * 40_000, "y" * 40_000], "value: too large"),
        ("x" * 65_537, "value: 65537 characters"),
        (Raises(), "value: unreadable: RuntimeError"),
        (Unprintable(), "value: unreadable: SystemExit"),
    ],
    ids=range(9),
)
def test_field_that_cannot_be_kept_is_named_and_costs_no_other(value, why):
    made = plain_metadata({"before": 1, "value": value, "after": 2})
    assert (made["before"], made["after"]) == (1, 2)
    assert made[CUT].startswith(why)
    assert len(json.dumps(made)) < 70_000


def test_mapping_that_fails_while_it_is_read_keeps_what_was_read():
    assert plain_metadata(Raises()) == {"good": "good", "last": "last", CUT: "bad: unreadable: RuntimeError"}
    assert plain_metadata(Growing()) == {"text": "a", CUT: "unreadable: RuntimeError"}
    assert plain_metadata({Unprintable(): 1, "after": 2}) == {"after": 2, CUT: "unreadable: SystemExit"}


def test_only_so_many_fields_are_kept():
    made = plain_metadata({str(number): [number] for number in range(FIELDS + 1)})
    assert len(made) == FIELDS + 1
    assert made[CUT] == "over 256 fields"


@pytest.mark.parametrize(
    ("value", "made"),
    [
        ({"b"}, ["b"]),
        (deque(["a", 1]), ["a", 1]),
        (b"caf\xc3\xa9", "café"),
        (b"\xff\xfe", "<bytes: 2>"),
        (PurePosixPath("/a/b"), "/a/b"),
        (Point("T", 3), {"x": "T", "y": 3}),
        (ValueError("no", 7), "('no', 7)"),
        (np.str_("text"), "text"),
        (np.int64(3), 3),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.float32(0.5), 0.5),
        (float("nan"), None),
        (Decimal("1.5"), "1.5"),
        (Colour.RED, "Colour.RED"),
        ({("a", 1): {"b": ("c", None)}}, {"('a', 1)": {"b": ["c", None]}}),
        (10**5000, "an integer of 16610 bits"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_become_what_json_can_hold(value, made):
    assert plain_metadata({"value": value, "other": [1]}) == {"value": made, "other": [1]}
    json.dumps(plain_metadata({"value": value}), allow_nan=False)


def test_texts_are_changed_before_they_are_cut_keys_too():
    long = "Ada" + "x" * 65_535
    made = plain_metadata(
        {"Ada": ["x", b"by Ada", {"of Ada": "Ada"}], "long": long, "own Ada": 1},
        lambda text: text.replace("Ada", "A."),
        {"own Ada"},
    )
    assert made["A."] == ["x", "by A.", {"of A.": "A."}]
    assert made["long"].startswith("A.x")
    assert made["long"].endswith("x…")
    assert made["own Ada"] == 1
    assert made[CUT] == "long: 65537 characters"
