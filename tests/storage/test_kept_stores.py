"""A store and a folder of parts that the version before schema 5 wrote, with all that a record can hold.

Both are read, and the store is also written on. `expected-4.jsonl` is what that version read from its store.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest
from support.fixed_runs import fixed_runs

from ragguard import RagGuard
from ragguard.capture.events import RunEnded, RunNames, RunStarted, StepAmended, StepEnded
from ragguard.facts.run_view import RunView
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.scorers.answer_words import AnswerWords
from ragguard.storage.source import open_source, read_scored
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.storage.sqlite.store import Store

KEPT = Path(__file__).parent / "kept"


def unpacked(packed: Path, to: Path) -> Path:
    to.write_bytes(gzip.decompress(packed.read_bytes()))
    return to


@pytest.fixture
def path(tmp_path):
    """A store of schema 4."""
    return unpacked(KEPT / "store-4.db.gz", tmp_path / "s.db")


@pytest.fixture
def parts(tmp_path):
    """A folder of parts, each a store of schema 4."""
    folder = tmp_path / "parts"
    shutil.copytree(KEPT / "parts-4", folder)
    for packed in folder.rglob("*.db.gz"):
        unpacked(packed, packed.with_suffix(""))
        packed.unlink()
    return folder


def expected():
    return [json.loads(line) for line in (KEPT / "expected-4.jsonl").read_text().splitlines()]


def known_of(store):
    """What a store holds, without the fields that records had not then."""
    return [
        known(json.loads(json.dumps(asdict(scored))), then)
        for scored, then in zip(store.scored_runs(), expected(), strict=False)
    ]


def known(now, then):
    if isinstance(then, dict) and isinstance(now, dict):
        return {name: known(now[name], value) for name, value in then.items()}
    if isinstance(then, list) and isinstance(now, list) and len(now) == len(then):
        return [known(*pair) for pair in zip(now, then, strict=True)]
    return now


def version(path):
    with closing(sqlite3.connect(path)) as db:
        return db.execute("PRAGMA user_version").fetchone()[0]


def test_store_of_schema_4_is_read_whole_and_stays_as_it_is(path):
    before = path.read_bytes()
    with closing(StoreReader(path)) as store:
        assert known_of(store) == expected()
        assert [one.scored.run.metadata for one in store.overviews()][4]["feedback"] == {
            "thumb": "up",
            "note": "right",
        }
    assert path.read_bytes() == before


def test_store_of_schema_4_is_written_on_and_nothing_that_it_held_changes(path):
    with closing(Store(path)) as store:
        assert known_of(store) == expected()
        store.record([RunStarted(Run("new", "who?", status="open")), RunEnded("new", answer="Ada")])
        assert known_of(store) == expected()
        assert store.run("order-7").id == "captured"
    assert version(path) == 5


def test_run_of_schema_4_is_amended_and_resumed_by_this_version(path):
    with closing(Store(path)) as store:
        before = store.run("captured")
        store.record([StepAmended("later", "c-s1", before.steps[1].passages[:1], metadata={"cut": 1})])
        passage = Passage("Ada Berg founded Norvik Mills.", id="p4")
        store.record([
            RunStarted(Run("resumed", "", status="open"), RunNames(thread="t2", resumes=True)),
            StepEnded(RetrievalStep("w-s1", "resumed", 0, 0, "again", [passage], [passage])),
            RunEnded("resumed", answer="yes"),
        ])  # fmt: skip
        amended, waited = store.run("captured").steps[1], store.run("waits")
    assert (amended.passages, amended.candidates) == (
        before.steps[1].passages[:1],
        before.steps[1].candidates,
    )
    assert (amended.sub_steps, amended.metadata) == (before.steps[1].sub_steps, {"cut": 1})
    assert (waited.status, waited.answer, [step.index for step in waited.steps]) == ("ok", "yes", [0, 1])
    assert [step.turn for step in waited.steps] == [0, 1]


def test_runs_of_schema_4_that_come_again_are_not_scored_again(path):
    """Their rows have another form, and the runs are the same."""
    with closing(Store(path)) as store:
        for scored in fixed_runs():
            claim = store.submit(scored.run, "settings")
            store.release(claim.run.id)
            assert claim.revision == 1


def test_folder_of_parts_of_schema_4_is_read_whole(parts):
    scored = list(read_scored(parts))
    assert scored == [type(one)(one.run, one.scores, one.failures) for one in fixed_runs()]
    assert len(list(open_source(parts).overviews())) == len(scored)
    assert {version(path) for path in (parts / "parts").glob("*.db")} == {4}


async def test_a_verdict_by_the_words_of_an_earlier_version_is_given_again(tmp_path):
    """The answer denies the reference in German, which version 1 of the scorer did not know."""
    path = unpacked(KEPT / "words-1.db.gz", tmp_path / "words.db")
    with RagGuard(engine=None, scorers=["words"], store=path) as rg:
        (run,) = rg.runs()
        before = rg.scores(run.id)
        assert RunView(run, before).answer_verdict == "correct"
        again = await rg.score(run)
        assert {score.version[0] for score in before} == {"1"}
        assert {score.version[0] for score in again} == {AnswerWords.version}
        assert RunView(run, rg.scores(run.id)).answer_verdict == ""
