"""Runs from one database into another, with everything that hangs on them: to memory when the disk
fails, and back when it works again."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from ragguard.capture.events import StepEnded
from ragguard.records import Run, Score
from ragguard.store.ledger import insert_failures, insert_scores
from ragguard.store.reading import failures_of_settings, place_of, runs_at, scores_at
from ragguard.store.writing import Writing

CHUNK = 100


def transfer(
    source: sqlite3.Connection, target: sqlite3.Connection, owner: str, *, settled: bool = True
) -> None:
    """Copies `owner`'s runs, and where `settled` those that nothing is left to do for; inside a transaction
    of the target."""
    rows = source.execute(
        "SELECT seq FROM runs WHERE owner = ? OR (? AND owner IS NULL) ORDER BY seq", (owner, settled)
    )
    places = [row[0] for row in rows]
    for start in range(0, len(places), CHUNK):
        _copy(source, target, owner, places[start : start + CHUNK])


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, owner: str, places: Sequence[int]) -> None:
    runs = runs_at(source, places)
    ids = {place: run.id for place, run in runs.items()}
    scores, failures = scores_at(source, ids), failures_of_settings(source, ids)
    writing = Writing(target, owner)
    # Of a run that was settled before, only what came late is here; it joins what is there.
    late = [place for place, run in runs.items() if not run.question and place_of(target, run.id)]
    for place, run in runs.items():
        if place not in late:
            writing.run(run)
            continue
        for step in run.steps:
            writing.event(StepEnded(step))
    writing.finish()
    for place, run in runs.items():
        if place in late:
            continue
        _copy_state(source, target, place, run, scores[place])
        there = place_of(target, run.id)
        assert there is not None
        target.execute("DELETE FROM failures WHERE run = ?", (there,))
        for identity, failure in failures[place]:
            insert_failures(target, there, identity, [failure])


def _copy_state(
    source: sqlite3.Connection, target: sqlite3.Connection, place: int, run: Run, scores: Sequence[Score]
) -> None:
    there = place_of(target, run.id)
    assert there is not None
    before = target.execute("SELECT coalesce(max(seq), 0) FROM scores WHERE run = ?", (there,)).fetchone()[0]
    insert_scores(target, there, scores)
    state = source.execute(
        "SELECT revision, owner, due_ns, queued_ns, emit_after, attempts FROM runs WHERE seq = ?", (place,)
    ).fetchone()
    target.execute(
        "UPDATE runs SET owner = ?, due_ns = ?, queued_ns = ?, emit_after = ?, attempts = ? WHERE seq = ?",
        (
            state["owner"], state["due_ns"], state["queued_ns"],
            None if state["emit_after"] is None else before, state["attempts"], there,
        ),
    )  # fmt: skip
    target.executemany(
        "INSERT INTO scorings (run, identity, revision, finished) "
        "VALUES (?, ?, (SELECT revision FROM runs WHERE seq = ?), ?) "
        "ON CONFLICT (run, identity) DO UPDATE SET revision = excluded.revision, finished = excluded.finished",
        [
            (there, row["identity"], there, row["finished"])
            for row in source.execute(
                "SELECT identity, finished FROM scorings WHERE run = ? AND revision = ?",
                (place, state["revision"]),
            )
        ],
    )
