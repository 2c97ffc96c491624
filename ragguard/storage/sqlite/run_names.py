"""The names of runs beside their ids, in the table `names`.

A name is of one of three kinds:
- `caller`: the id that the application gave the run. Several runs may have the same one.
- `thread`: the conversation for which an interrupted run waits. Whoever resumes the run takes this name away.
- `part`: the id of an invocation that resumed the run. Events that were captured under this id belong to the run.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from ragguard.storage.sqlite.layout import storable

CALLER, THREAD, INVOCATION = "caller", "thread", "part"
_LATEST = f"SELECT coalesce(max(part), 0) FROM names WHERE run = runs.seq AND kind = '{INVOCATION}'"
LATEST_INVOCATION = f"({_LATEST}) AS invocations"
"""The SQL column of a run's row: the number of the latest invocation that resumed the run, 0 where none did."""


def find_runs(db: sqlite3.Connection, name: str) -> list[int]:
    """Returns the `seq` of the run with this id, else of all that are called so, the latest last."""
    by_id = db.execute("SELECT seq FROM runs WHERE id = ?", (storable(name),)).fetchall()
    by_name = f"SELECT run FROM names WHERE name = ? AND kind <> '{THREAD}' ORDER BY run"
    return [row[0] for row in by_id or db.execute(by_name, (storable(name),))]


def find_run(db: sqlite3.Connection, name: str) -> int | None:
    """Returns the `seq` of the run with this id, else of the latest one that is called so; None where there is none."""
    return found[-1] if (found := find_runs(db, name)) else None


def waiting_run(db: sqlite3.Connection, thread: str) -> int | None:
    """Returns the `seq` of the latest run that waits for a thread; None where none does."""
    latest = f"SELECT max(run) FROM names WHERE name = ? AND kind = '{THREAD}'"
    seq: int | None = db.execute(latest, (storable(thread),)).fetchone()[0] if thread else None
    return seq


def find_invocation(db: sqlite3.Connection, id: str) -> sqlite3.Row | None:
    """Returns what was captured under this id, a run's first invocation or one that resumed a run: the `seq` of the
    run, the number of the invocation, and how many steps and turns the run had before it."""
    # Most runs are new: a query of few columns is the quicker one where it finds nothing.
    row: sqlite3.Row | None = db.execute(
        "SELECT seq, 0, 0, 0 FROM runs WHERE id = ?1 UNION ALL "
        f"SELECT run, part, steps, turns FROM names WHERE name = ?1 AND kind = '{INVOCATION}'",
        (storable(id),),
    ).fetchone()
    return row


def resume(db: sqlite3.Connection, seq: int, id: str) -> None:
    """Notes that the invocation with this id resumes a run, which then waits no more; its steps and turns are numbered
    on from those that are stored."""
    db.execute(f"DELETE FROM names WHERE run = ? AND kind = '{THREAD}'", (seq,))
    db.execute(
        "INSERT INTO names (name, kind, run, part, steps, turns) SELECT ?1, ?2, ?3, "
        "(SELECT coalesce(max(part), 0) + 1 FROM names WHERE run = ?3 AND kind = ?2), "
        "coalesce(max(idx) + 1, 0), coalesce(max(turn) + 1, 0) FROM steps WHERE run = ?3",
        (storable(id), INVOCATION, seq),
    )


def add_names(db: sqlite3.Connection, names: Iterable[tuple[str, str, int]]) -> None:
    """Writes names: the name, its kind and the run's `seq`, each once."""
    db.executemany("INSERT OR IGNORE INTO names (name, kind, run) VALUES (?, ?, ?)", names)
