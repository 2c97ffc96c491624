"""Texts of passages are stored once, however many come at a time, and go with the last run that needs them."""

from support.stored import closed_after

from ragguard.records import Passage, RetrievalStep, Run
from ragguard.store.rows import Digests
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


def test_the_digest_of_a_text_is_known_by_its_address_only_while_the_text_is_kept():
    digests = Digests(1000)
    for number in range(5000):  # texts that come and go use the same addresses
        text = f"{number} " * 20
        known = digests.known.get(id(text))
        assert known is None
        assert digests.of(text) == Digests(0).of(text)
        assert sum(len(text) for _, text in digests.known.values()) <= 1000
