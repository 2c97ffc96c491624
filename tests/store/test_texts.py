"""Texts of passages are stored once, however many come at a time, and go with the last run that needs them."""

import json
from dataclasses import replace

import pytest
from support.stored import closed_after

from ragguard.records import Passage, RetrievalStep, Run
from ragguard.store.passage_table import EncodedPassages
from ragguard.store.store import Store


def run_with(id, numbers):
    found = [Passage(f"text {number} \u00e9", f"p{number}") for number in numbers]
    return Run(id, "q", steps=[RetrievalStep("s", id, passages=found, candidates=found)], started_ns=1)


def kept(path):
    with closed_after(path) as db:
        return (
            db.execute("SELECT count(*) FROM passages").fetchone()[0],
            db.execute("SELECT count(*) FROM passage_uses").fetchone()[0],
        )


def test_texts_by_the_hundred_are_stored_once_and_go_with_their_last_run(tmp_path):
    path = tmp_path / "s.db"
    store = Store(path)
    first, second = run_with("first", range(350)), run_with("second", [*range(600, 149, -1), 150, 600])
    store.put(first)
    assert kept(path) == (350, 0)
    store.put(second)
    assert kept(path) == (601, 200)
    assert list(store.runs()) == [first, second]
    store.put(second)
    assert kept(path) == (601, 200)
    store.delete("first")
    assert kept(path) == (451, 0)
    assert list(store.runs()) == [second]
    store.delete("second")
    assert kept(path) == (0, 0)


def test_a_text_is_known_by_its_address_only_while_the_text_is_kept():
    encoded = EncodedPassages(1000)
    for number in range(5000):  # texts that come and go use the same addresses
        passage = Passage(f"{number} " * 20, f"p{number}", number / 3, {"page": number})
        assert encoded.encode(passage) == EncodedPassages(0).encode(passage)
        assert encoded.encode(passage) == EncodedPassages(0).encode(passage)
        assert sum(len(text) for text, *_ in encoded._texts.known.values()) <= 1000


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
def test_what_is_known_of_a_text_stands_for_no_other_passage_with_it(change):
    encoded = EncodedPassages(1000)
    passage = Passage("one text", "p", 1.0, {"page": 1})
    other = replace(passage, **change)
    for one in (passage, other, passage, other):
        item, digest, text = encoded.encode(one)
        assert (item, digest, text) == EncodedPassages(0).encode(one)
        score = None if one.score != one.score else one.score
        assert json.loads(item) == [digest.hex(), one.id, score, one.metadata or None, one.grade]
    assert encoded.encode(passage)[0] != encoded.encode(other)[0]


def test_metadata_that_change_after_they_were_written_are_written_anew():
    encoded, metadata = EncodedPassages(1000), {"page": 1}
    before = encoded.encode(Passage("one text", metadata=metadata))[0]
    metadata["page"] = 2
    assert encoded.encode(Passage("one text", metadata=metadata))[0] == before.replace("1}", "2}")
