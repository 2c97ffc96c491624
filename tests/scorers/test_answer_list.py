"""Verdicts on 200 answers that were labelled by hand;
`docs/reference/scorers.md` tells how the list was made, and its errors."""

import json
from pathlib import Path

import pytest

from ragguard.engines.entailer import Pair
from ragguard.metrics import is_abstention
from ragguard.scorers.answers import verdict_of
from ragguard.scorers.meanings import Meanings
from ragguard.scorers.question import EntailAnswer

FILE = Path(__file__).parent / "data" / "answers.jsonl"
ROWS = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def half(kind, held_out):
    return [row for row in ROWS if kind in row and row["held_out"] is held_out]


def test_the_list_has_both_kinds_in_both_halves():
    assert len(ROWS) == 200
    assert len({(row.get("question"), row["answer"]) for row in ROWS}) == 200
    for kind in ("abstains", "right"):
        for held_out in (False, True):
            assert {row[kind] for row in half(kind, held_out)} == {False, True}


@pytest.mark.parametrize(("held_out", "missed", "mistaken"), [(False, 1, 1), (True, 5, 0)])
def test_abstentions(held_out, missed, mistaken):
    rows = half("abstains", held_out)
    found = {row["answer"]: is_abstention(row["answer"]) for row in rows}
    assert sum(row["abstains"] and not found[row["answer"]] for row in rows) == missed
    assert sum(found[row["answer"]] and not row["abstains"] for row in rows) == mistaken


@pytest.mark.parametrize(
    ("answer", "abstains"),
    [
        ("I'm uncertain and don't want to guess", True), ("There is no mention of it", True), ("Unclear", True),
        ("Not sure, maybe Paris", False),
    ],
)  # fmt: skip
def test_the_named_cases(answer, abstains):
    assert is_abstention(answer) is abstains


async def verdict(row):
    """The verdict where the entailer knows what follows from what."""

    def follows(pair: Pair) -> bool:
        return row["forward"] if pair.premise == row["answer"] else row["backward"]

    async def ask(questions):
        return [EntailAnswer((0.9, 0.1, 0.0) if follows(one.pair) else (0.1, 0.9, 0.0)) for one in questions]

    return await verdict_of(row["answer"], [row["reference"]], Meanings(row["question"], ask))


@pytest.mark.parametrize(("held_out", "passed", "refused"), [(False, 0, 4), (True, 0, 3)])
async def test_right_and_wrong(held_out, passed, refused):
    rows = half("right", held_out)
    correct = [(await verdict(row))[0] == "correct" for row in rows]
    assert sum(found and not row["right"] for row, found in zip(rows, correct, strict=True)) == passed
    assert sum(row["right"] and not found for row, found in zip(rows, correct, strict=True)) == refused


async def test_more_than_the_reference_is_not_the_reference():
    (row,) = [row for row in ROWS if row["answer"] == "Malia, Sasha, and Susan"]
    assert await verdict(row) == ("wrong", "a reference follows from it, and it says more")
