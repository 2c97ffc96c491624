"""Rows that cannot be read: they cost their own run, which is named, and no other."""

from __future__ import annotations

import sqlite3

import pytest
from support.runs import a_run, scores_of
from support.stored import captured, store_scores
from typer.testing import CliRunner

from ragguard.cli.app import app
from ragguard.errors import StoreError
from ragguard.records import Failure
from ragguard.storage.sqlite.runs import Runs
from ragguard.storage.sqlite.store import Store

RUNS = 7
EVERYWHERE = "runs overviews means scored_runs".split()
POISONS = [
    ("UPDATE runs SET started_ns = x'0001' WHERE id = 'r3'", "runs.started_ns is bytes"),
    ("UPDATE runs SET ended_ns = 'late' WHERE id = 'r3'", "runs.ended_ns is str"),
    ("UPDATE runs SET question = x'ff' WHERE id = 'r3'", "runs.question is bytes"),
    ("UPDATE runs SET body = '[1]' WHERE id = 'r3'", "runs.body is list"),
    ("UPDATE runs SET body = 'no JSON' WHERE id = 'r3'", "JSON"),
    ("UPDATE runs SET body = '{\"references\": [1]}' WHERE id = 'r3'", "runs.body.references holds int"),
    ("UPDATE runs SET answer = CAST(x'fffe' AS TEXT) WHERE id = 'r3'", "decode"),
    ("UPDATE steps SET started_ns = x'00' WHERE id = 'r3-s0'", "steps.started_ns is bytes"),
    ("UPDATE steps SET idx = 'first' WHERE id = 'r3-s0'", "steps.idx is str"),
    ("UPDATE steps SET body = '{}' WHERE id = 'r3-s0'", "passages"),
    ("UPDATE steps SET body = '{' WHERE id = 'r3-s0'", "JSON"),
    ("UPDATE scores SET value = 'high' WHERE run = (SELECT seq FROM runs WHERE id = 'r3')", "scores"),
    ("UPDATE scores SET value = x'00' WHERE run = (SELECT seq FROM runs WHERE id = 'r3')", "scores"),
    ("UPDATE scores SET value = 9e999 WHERE run = (SELECT seq FROM runs WHERE id = 'r3')", "scores"),
    ("UPDATE scores SET stderr = 'wide' WHERE run = (SELECT seq FROM runs WHERE id = 'r3')", "scores"),
    ("UPDATE scores SET name = x'ff' WHERE run = (SELECT seq FROM runs WHERE id = 'r3')", ""),
    ("UPDATE scores SET level = x'ff' WHERE run = (SELECT seq FROM runs WHERE id = 'r3')", ""),
    ("UPDATE scores SET stage = x'ff' WHERE run = (SELECT seq FROM runs WHERE id = 'r3')", ""),
    (
        "UPDATE failures SET message = x'00' WHERE run = (SELECT seq FROM runs WHERE id = 'r3')",
        "failures.message",
    ),
]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "s.db"
    store = Store(path)
    for number in range(RUNS):
        run = a_run(f"r{number}")
        captured(store, run)
        store_scores(
            store, run, scores_of(run), [Failure("belief", "LowLabelMass", "too little", run_id=run.id)]
        )
    store.close()
    return path


def poison(path, statement):
    connection = sqlite3.connect(path)
    with connection:
        assert connection.execute(statement).rowcount > 0
    connection.close()


def ids(reader, store):
    if reader == "runs":
        return [run.id for run in store.runs()]
    if reader == "overviews":
        return [one.row["id"] for one in store.overviews(-0.2)]
    if reader == "scored_runs":
        return [one.run.id for one in store.scored_runs()]
    return [str(number) for number, _ in enumerate(store.means())]


@pytest.mark.parametrize(("statement", "why"), POISONS)
def test_every_reader_leaves_out_that_run_alone_and_says_which_and_why(path, caplog, statement, why):
    poison(path, statement)
    left_out = 0
    for reader in EVERYWHERE:
        store = Store(path, read_only=True)
        caplog.clear()
        found = ids(reader, store)
        assert len(found) in (RUNS - 1, RUNS)
        if len(found) < RUNS:
            left_out += 1
            assert "r3" not in found
            assert why in store.left_out.reasons["r3"]
        store.close()
    assert left_out >= 1


@pytest.mark.parametrize(("statement", "why"), POISONS)
def test_reports_and_comparisons_of_the_other_runs_go_on(path, tmp_path, caplog, statement, why):
    poison(path, statement)
    call = CliRunner().invoke
    for words in (
        ["report", str(path)], ["report", str(path), "--html", str(tmp_path / "page.html")],
        ["report", str(path), "--run", "r4"], ["compare", str(path), str(path)],
    ):  # fmt: skip
        done = call(app, words)
        assert done.exit_code == 0, (words, done.output, done.exception)
    done = call(app, ["report", str(path), "--run", "r3"])
    assert done.exit_code in (0, 2), done.exception
    assert "Traceback" not in done.output


def test_unreadable_rows_are_logged_once(path, caplog):
    poison(path, POISONS[0][0])
    store = Store(path, read_only=True)
    for _ in range(3):
        assert len(list(store.runs())) == RUNS - 1
    store.close()
    (warning,) = [one.getMessage() for one in caplog.records if "cannot be read" in one.getMessage()]
    assert "1 run cannot be read, left out: 'r3' (TypeError: runs.started_ns is bytes)" in warning


def test_asking_for_that_run_says_why_it_cannot_be_had(path):
    poison(path, POISONS[0][0])
    poison(path, POISONS[11][0])
    store = Store(path, read_only=True)
    with pytest.raises(StoreError, match=r"'r3' .* cannot be read: .*started_ns is bytes"):
        store.run("r3")
    with pytest.raises(StoreError, match=r"scores\.value is str"):
        store.scores("r3")
    runs = Runs(store)
    with pytest.raises(StoreError, match="run 3 of 7 cannot be read"):
        runs[3]
    assert [run.id for run in runs[2:5]] == ["r2", "r4"]
    store.close()


def test_a_due_run_that_cannot_be_read_holds_nobody_up_and_fails_for_good(tmp_path):
    path = tmp_path / "due.db"
    store = Store(path)
    captured(store, a_run("r1"), a_run("r2"))
    store.close()
    poison(path, "UPDATE runs SET started_ns = x'00' WHERE id = 'r1'")
    store = Store(path)
    store.housekeep()
    assert [claim.run.id for claim in store.claim(5)] == ["r2"]
    assert store.left().pending == 1
    [failure] = store.failures("r1")
    assert "runs.started_ns is bytes" in failure.message
    assert not failure.will_retry
    store.close()


def test_more_pages_than_one_are_read_behind_a_page_that_cannot_be_read(tmp_path):
    path = tmp_path / "many.db"
    store = Store(path)
    captured(store, *(a_run(f"r{number:03d}", steps=1) for number in range(230)))
    store.close()
    poison(path, "UPDATE runs SET started_ns = x'00' WHERE id < 'r205'")
    store = Store(path, read_only=True)
    assert len(list(store.runs())) == 25
    assert "205 runs cannot be read" in str(store.left_out)
    store.close()
