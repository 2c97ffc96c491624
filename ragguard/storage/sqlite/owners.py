"""Assigns runs to processes by leases, and finds out whether these processes live.

A process holds a lease while it works on a store. When the process is gone, the next one that checks takes over its
runs, so that no run is scored by two processes at a time and no run is left unscored.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ragguard.runtime.deadline import now_ns

LEASE_SECONDS = 30.0
_LONGEST_RETRY = 900.0
"""The most seconds that a run which a dead process left may wait for its next attempt."""


@dataclass(frozen=True, slots=True)
class Process:
    """The identity of a process, so that another on the same machine can tell whether it lives."""

    owner: str
    machine: str
    pid: int
    born: str


def this_process(owner: str) -> Process:
    """Returns the identity of this process."""
    return Process(owner, _machine(), os.getpid(), _born(os.getpid()) or "")


def renew(connection: sqlite3.Connection, process: Process) -> None:
    """Renews the lease of the process."""
    expires_ns = time.time_ns() + int(LEASE_SECONDS * 1e9)
    connection.execute(
        "INSERT INTO leases (owner, place, pid, born, expires_ns) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (owner) DO UPDATE SET expires_ns = excluded.expires_ns",
        (process.owner, process.machine, process.pid, process.born, expires_ns),
    )


def hold(connection: sqlite3.Connection, process: Process) -> None:
    """Gives the process a lease in a file where it has none yet, before it owns a run there."""
    if connection.execute("SELECT 1 FROM leases WHERE owner = ?", (process.owner,)).fetchone() is None:
        renew(connection, process)


def resign(connection: sqlite3.Connection, owner: str) -> None:
    """Ends the lease, so that other processes take over the runs that are not done."""
    connection.execute("DELETE FROM leases WHERE owner = ?", (owner,))


def adopt(connection: sqlite3.Connection, owner: str) -> None:
    """Takes over the runs of dead processes; those that were open end as abandoned."""
    now = now_ns()
    for one in _dead(connection):
        if one == owner:
            continue
        _abandon(connection, "owner = ?", (one,), now)
        # Where the dead process's clock was ahead, a run may be due far too late.
        connection.execute(
            "UPDATE runs SET owner = ?, queued_ns = min(queued_ns, ?), "
            "due_ns = min(due_ns, ? + iif(attempts, ?, 0)) WHERE owner = ?",
            (owner, now, now, int(_LONGEST_RETRY * 1e9), one),
        )
        resign(connection, one)


def left_behind(connection: sqlite3.Connection) -> tuple[int, int]:
    """Returns how many runs dead processes have left unfinished, and how many of these are open."""
    dead = _dead(connection)
    marks = ", ".join("?" * len(dead))
    found = connection.execute(
        f"SELECT count(*), coalesce(sum(status = 'open'), 0) FROM runs WHERE owner IN ({marks})", dead
    ).fetchone()
    return int(found[0]), int(found[1])


def _dead(connection: sqlite3.Connection) -> list[str]:
    """Returns the dead processes that have unfinished runs."""
    leases = {row["owner"]: row for row in connection.execute("SELECT * FROM leases")}
    owners = connection.execute("SELECT DISTINCT owner FROM runs WHERE owner IS NOT NULL")
    return [one for (one,) in owners if one not in leases or _is_dead(leases[one])]


def abandon_overdue(connection: sqlite3.Connection, owner: str, idle_since_ns: int) -> int:
    """Ends the open runs that began before `idle_since_ns` and had no step since then; returns how many."""
    return _abandon(
        connection,
        "owner = ? AND started_ns < ? AND NOT EXISTS "
        "(SELECT 1 FROM steps WHERE steps.run = runs.seq AND steps.ended_ns >= ?)",
        (owner, idle_since_ns, idle_since_ns),
        now_ns(),
    )


def _abandon(connection: sqlite3.Connection, condition: str, values: tuple[str | int, ...], now: int) -> int:
    return connection.execute(
        "UPDATE runs SET status = 'abandoned', ended_ns = ?, due_ns = ?, queued_ns = ? "
        f"WHERE status = 'open' AND {condition}",
        (now, now, now, *values),
    ).rowcount


def _is_dead(lease: sqlite3.Row) -> bool:
    # On the same machine the process table tells at once, whatever the clock; elsewhere only the lease's end does.
    ended = has_ended(lease["place"], lease["pid"], lease["born"])
    return bool(lease["expires_ns"] < time.time_ns()) if ended is None else ended


def has_ended(machine: str, pid: int, born: str) -> bool | None:
    """Returns whether a process has ended; None where that cannot be found out, as for one of another machine."""
    if machine != _machine() or (found := _born(pid)) == "":
        return None
    return found != born


@cache
def _machine() -> str:
    """Returns the names of the machine, its boot and the process namespace, in which a process id is unique."""
    parts = [socket.gethostname()]
    for path, read in (
        ("/proc/sys/kernel/random/boot_id", Path.read_text),
        ("/proc/self/ns/pid", os.readlink),
    ):
        try:
            parts.append(str(read(Path(path))).strip())
        except OSError:
            parts.append("")
    return "/".join(parts)


def _born(pid: int) -> str | None:
    """Returns the start of a process, in the system's own unit: '' where that cannot be read, None where there is no
    such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    except OSError:
        return ""
    else:
        fields = stat[stat.rindex(")") + 2 :].split()
        return None if fields[0] in "ZX" else fields[19]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return ""
    return ""


def make_due(connection: sqlite3.Connection, run: int, owner: str, now: int) -> None:
    """Marks a run as to be scored by its owner."""
    connection.execute(
        "UPDATE runs SET owner = ?, due_ns = ?, queued_ns = ? WHERE seq = ?", (owner, now, now, run)
    )
