"""Notes on the causes of a store's runs, made when a run is scored, so that many runs are counted without their texts.

A note rests on the scores that there were. If others have come since, or an older version wrote the file, a reader
finds out again what the run counts as; only a writer notes it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

from ragguard.facts.causes import (
    CAUSES,
    OPEN,
    CauseCounts,
    CauseNote,
    DocumentCount,
    DocumentUse,
    note_of,
)
from ragguard.facts.run_view import RunView
from ragguard.storage.sqlite.layout import dump, storable
from ragguard.storage.sqlite.rows import UNREADABLE, chunks, has_causes, scored_at

_NEWEST = "(SELECT coalesce(max(seq), 0) FROM scores WHERE scores.run = {})"
_FRESH = (
    "SELECT run, cause, documents, retrievers FROM causes WHERE run IN ({}) AND scored = "
    f"{_NEWEST.format('causes.run')}"
)
_TALLY = (
    "CREATE TABLE documents (id TEXT PRIMARY KEY, runs INTEGER, read INTEGER, used INTEGER, misled INTEGER, "
    "contested INTEGER) WITHOUT ROWID"
)
_COUNTS = ("runs", "read", "used", "misled", "contested")
_ADD = (
    "INSERT INTO documents VALUES (?, 1, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
    f"{', '.join(f'{name} = {name} + excluded.{name}' for name in _COUNTS)}"
)


_DOCUMENTS = (
    ("misleading", "misled > 0", "misled"),
    ("contested", "contested > 0", "contested"),
    ("unused", "used = 0 AND read > 1", "read"),
)
"""The lists of documents, each with its condition and with the count by which it is ordered."""
_LISTED = 100
"""The most documents of a list."""


class NotedRun(NamedTuple):
    """A run, and what it counts as."""

    id: str
    name: str
    note: CauseNote


def note_causes(db: sqlite3.Connection, seqs: Iterable[int]) -> None:
    """Notes what runs that have ended count as, by all of their scores. A run that another program made unreadable is
    left out; whoever reads it is told so."""
    with suppress(*UNREADABLE):
        for seq, scored in scored_at(db, seqs).items():
            if scored.run.status == OPEN:
                continue
            note = note_of(RunView(scored.run, scored.scores))
            uses = [[storable(one.id), one.flags] for one in note.documents]
            db.execute(
                f"INSERT OR REPLACE INTO causes VALUES (?1, {_NEWEST.format('?1')}, ?2, ?3, ?4)",
                (seq, note.cause, dump(uses), dump([storable(one) for one in note.retrievers])),
            )


def notes_at(db: sqlite3.Connection, seqs: Iterable[int]) -> dict[int, CauseNote]:
    """Returns what the runs with these `seq` count as."""
    wanted = list(seqs)
    found: dict[int, CauseNote] = {}
    if has_causes(db):
        for seq, cause, documents, retrievers in chunks(db, _FRESH, wanted):
            if cause in CAUSES:  # else another program wrote it
                uses = [DocumentUse.of(id, flags) for id, flags in json.loads(documents)]
                found[seq] = CauseNote(cause, uses, [*map(storable, json.loads(retrievers))])
    for seq, scored in scored_at(db, [seq for seq in wanted if seq not in found]).items():
        found[seq] = note_of(RunView(scored.run, scored.scores))
    return found


def noted_runs_at(db: sqlite3.Connection, runs: Mapping[int, str]) -> dict[int, NotedRun]:
    """Returns some runs (`seq` → id), and what each counts as."""
    notes = notes_at(db, runs)
    names = {seq: name for seq, name in chunks(db, "SELECT seq, name FROM runs WHERE seq IN ({})", runs)}  # noqa: C416
    return {seq: NotedRun(id, names[seq], notes[seq]) for seq, id in runs.items()}


def count_causes(runs: Iterable[NotedRun]) -> CauseCounts:
    """Returns how many runs count as what; iterates once. Documents are counted on the disk, since there may be as many
    as passages in the runs."""
    counts = CauseCounts()
    with closing(sqlite3.connect("", isolation_level=None)) as tally:  # a temporary file
        tally.execute("PRAGMA synchronous = OFF")
        tally.execute(_TALLY)
        tally.execute("BEGIN")
        for _, name, note in runs:
            counts.add(note, name)
            tally.executemany(_ADD, _uses(note.documents))
        tally.execute("COMMIT")
        for name, condition, order in _DOCUMENTS:
            listed = _documents(tally, condition, order)
            (number,) = tally.execute(f"SELECT count(*) FROM documents WHERE {condition}").fetchone()
            setattr(counts, name, listed)
            counts.left_out[name] = number - len(listed)
    return counts


def _uses(documents: Sequence[DocumentUse]) -> Iterator[tuple[object, ...]]:
    for one in documents:
        yield one.id, one.read, one.used, one.misled, one.contested


def _documents(tally: sqlite3.Connection, condition: str, order: str) -> list[DocumentCount]:
    rows = tally.execute(
        f"SELECT id, {', '.join(_COUNTS)} FROM documents WHERE {condition} ORDER BY {order} DESC, id LIMIT {_LISTED}"
    )
    return [DocumentCount(id, *numbers) for id, *numbers in rows]
