"""Writes whole runs: those that are to be scored in the background, and those that come with their scores."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from ragguard.errors import InvalidInput
from ragguard.records import Run, ScoredRun
from ragguard.runtime.deadline import now_ns
from ragguard.storage.sqlite import ledger
from ragguard.storage.sqlite.columns import dump, storable
from ragguard.storage.sqlite.owners import make_due
from ragguard.storage.sqlite.run_names import find_run
from ragguard.storage.sqlite.score_rows import insert_scores
from ragguard.storage.sqlite.writing import Writing
from ragguard.text.plain import plain_metadata


def write_scored(db: sqlite3.Connection, scored: Iterable[ScoredRun], owner: str) -> None:
    """Writes runs with their scores and failures. A run that is there gets more scores."""
    for one in scored:
        writing = Writing(db, owner)  # one a run, so that the texts of one run alone are in memory
        writing.write_run(one.run)
        writing.finish()
        seq = find_run(db, one.run.id)
        assert seq is not None
        insert_scores(db, seq, one.scores)
        ledger.insert_failures(db, seq, "", one.failures)


def write_due(
    db: sqlite3.Connection, runs: Iterable[Run], owner: str, *, scored: bool
) -> dict[str, InvalidInput]:
    """Writes runs in place of the stored ones of their ids; those that are new or different become due, unless nothing
    is `scored`. Returns the errors of those that cannot be written, by their ids."""
    refused: dict[str, InvalidInput] = {}
    writing = Writing(db, owner)
    for run in runs:
        try:
            changed = writing.write_run(run)
        except InvalidInput as error:
            refused[run.id] = error
            continue
        if changed and scored:
            seq = db.execute("SELECT seq FROM runs WHERE id = ?", (storable(run.id),)).fetchone()[0]
            make_due(db, seq, owner, now_ns())
    writing.finish()
    return refused


def add_metadata(
    db: sqlite3.Connection, run_id: str, metadata: Mapping[str, Any], *, due_with: str = ""
) -> bool:
    """Adds metadata to a stored run, open or not; returns False where it is not there. One that has ended is due again
    with the owner `due_with`, where one is named."""
    seq = find_run(db, run_id)
    if seq is None:
        return False
    run = db.execute("SELECT body, status FROM runs WHERE seq = ?", (seq,)).fetchone()
    body = json.loads(run["body"])
    body["metadata"] = {**body.get("metadata", {}), **plain_metadata(metadata)}
    db.execute("UPDATE runs SET body = ? WHERE seq = ?", (dump(body), seq))
    if due_with and run["status"] != "open":
        db.execute("UPDATE runs SET revision = revision + 1, attempts = 0 WHERE seq = ?", (seq,))
        make_due(db, seq, due_with, now_ns())
    return True
