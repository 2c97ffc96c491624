"""Texts of passages are stored once, however many come at a time, and go with the last run that needs them."""

import json
from dataclasses import replace
from hashlib import sha256

import pytest
from support.stored import closed_after

from ragguard.records import Passage, RetrievalStep, Run, ScoredRun
from ragguard.storage.sqlite import passages
from ragguard.storage.sqlite.passages import PassageTable
from ragguard.storage.sqlite.schema import DIGEST_BYTES, dump
from ragguard.storage.sqlite.store import Store


def run_with(id, numbers):
    found = [Passage(f"text {number} \u00e9", f"p{number}") for number in numbers]
    return Run(id, "q", steps=[RetrievalStep("s", id, passages=found, candidates=found)], started_ns=1)


def kept(path):
    with closed_after(path) as db:
        return (
            db.execute("SELECT count(*) FROM passages").fetchone()[0],
            db.execute("SELECT count(*) FROM passage_uses").fetchone()[0],
        )


def items_of(*passages):
    """Returns the items of a row of these passages."""
    table = PassageTable({})
    table.positions_of(passages)
    return json.loads(table.body({}))["items"]


def test_texts_by_the_hundred_are_stored_once_and_go_with_their_last_run(tmp_path):
    path = tmp_path / "s.db"
    store = Store(path)
    first, second = run_with("first", range(350)), run_with("second", [*range(600, 149, -1), 150, 600])
    store.add_scored([ScoredRun(first)])
    assert kept(path) == (350, 0)
    store.add_scored([ScoredRun(second)])
    assert kept(path) == (601, 200)
    assert list(store.runs()) == [first, second]
    store.add_scored([ScoredRun(second)])
    assert kept(path) == (601, 200)
    store.delete("first")
    assert kept(path) == (451, 0)
    assert list(store.runs()) == [second]
    store.delete("second")
    assert kept(path) == (0, 0)


def test_a_text_is_known_by_its_address_only_while_the_text_is_kept():
    for number in range(5000):  # texts that come and go use the same addresses
        text = f"{number} " * 600
        for _ in range(2):
            assert items_of(Passage(text))[0][0] == sha256(text.encode()).hexdigest()[: 2 * DIGEST_BYTES]
    assert sum(len(given) for *_, given in passages._digested.known.values()) <= 4 * 2**20


@pytest.mark.parametrize(
    "change",
    [
        {"id": "q"}, {"score": None}, {"score": 1}, {"score": 0.25}, {"score": float("nan")}, {"grade": 3},
        {"metadata": {}},
        {"metadata": {"page": True}}, {"metadata": {"page": 1.0}}, {"metadata": {"page": [1]}},
        {"metadata": {"page": 1, "more": 1}}, {"metadata": {"sheet": 1}},
    ],
    ids=str,
)  # fmt: skip
def test_passages_with_one_text_are_one_item_only_where_all_else_is_the_same(change):
    passage = Passage("one text", "p", 1.0, {"page": 1})
    other = replace(passage, **change)
    first, second = items_of(passage, other, replace(passage), replace(other))
    for item, one in ((first, passage), (second, other)):
        score = None if one.score != one.score else one.score
        assert item[1:] == [one.id, score, one.metadata or None, one.grade]
        assert [type(value) for value in item[1:3]] == [type(one.id), type(score)]
    assert dump(first) != dump(second)


def test_metadata_that_change_after_they_were_written_are_written_anew():
    passage = Passage("one text", metadata={"page": 1})
    assert items_of(passage)[0][3] == {"page": 1}
    passage.metadata["page"] = 2
    assert items_of(passage)[0][3] == {"page": 2}
