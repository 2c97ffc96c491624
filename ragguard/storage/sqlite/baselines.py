"""Baselines: names for the runs that a store has at a moment, kept in its table `meta`."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from ragguard.errors import InvalidInput, StoreError, UnknownName
from ragguard.runtime.faults import describe
from ragguard.storage.sqlite.database import Database
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.storage.sqlite.rows import UNREADABLE, chunks

_KEY = "baseline:"
"""Prefix of keys in `meta`: the name of a baseline → what it holds, as JSON."""
_DOCUMENTS = (
    "SELECT run, json_extract(item.value, '$[0]') FROM steps, json_each(steps.body, '$.items') AS item "
    "WHERE run IN ({})"
)
_NAME = re.compile(r"[\w.-]{1,80}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Baseline:
    """The runs that came after the baseline before, up to the moment when this one was set."""

    name: str
    at: str
    """The time at which it was set."""
    first: int
    """The `seq` of its first run."""
    last: int
    runs: int
    """The number of its runs when it was set."""
    documents: str
    """The fingerprint of the passages that its runs saw."""

    @property
    def span(self) -> range:
        """The `seq` of its runs."""
        return range(self.first, self.last + 1)


def baselines(path: str | Path) -> dict[str, Baseline]:
    """Returns the baselines of a store by their names, the oldest first."""
    rows = _rows(path, "SELECT key, value FROM meta WHERE key >= ? AND key < ?", _KEY, "baseline;")
    made = sorted((_read(path, key, value) for key, value in rows), key=lambda baseline: baseline.last)
    return {baseline.name: baseline for baseline in made}


def _read(path: str | Path, key: str, value: str) -> Baseline:
    try:
        made = Baseline(**json.loads(value))
        if any(type(getattr(made, each.name)).__name__ != each.type for each in fields(Baseline)):
            raise TypeError("a value of another type")
    except UNREADABLE as error:
        name = str(key).removeprefix(_KEY)
        raise StoreError(
            f"the baseline {name!r} of {path} cannot be read: {describe(error)}; set it again under another name, or "
            "restore the file"
        ) from error
    return made


def baseline(path: str | Path, name: str) -> Baseline:
    """Returns a baseline of a store; raises UnknownName where it has none of that name."""
    known = baselines(path)
    if name not in known:
        there = ", ".join(known) or f"none yet: `ragguard baseline {shlex.quote(str(path))} NAME` sets one"
        raise UnknownName("baseline", name, f"a baseline of {path}: {there}")
    return known[name]


def runs_since(path: str | Path) -> range:
    """Returns the `seq` of the runs after the last baseline of a store, up to the present."""
    last = max((one.last for one in baselines(path).values()), default=0)
    newest = _rows(path, "SELECT coalesce(max(seq), 0) FROM runs")[0][0]
    if newest <= last:
        allowed = "some to compare; score them first"
        raise InvalidInput(f"the runs of {path}", "none since its last baseline", allowed)
    return range(last + 1, newest + 1)


def set_baseline(path: str | Path, name: str) -> Baseline:
    """Gives a name to the runs since the last baseline; one of that name is replaced."""
    if not _NAME.fullmatch(name):
        allowed = "a name of letters, digits, dots, dashes and underscores, at most 80"
        raise InvalidInput("baseline", name, allowed)
    span = runs_since(path)
    made = Baseline(
        name, datetime.now(UTC).isoformat(timespec="seconds"), span[0], last=span[-1], runs=count_runs(path, span),
        documents=fingerprint(documents(path, span)),
    )  # fmt: skip
    with closing(Database(Path(path))) as store, store.transaction() as db:
        values = _KEY + name, json.dumps(asdict(made))
        db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", values)
    return made


def count_runs(path: str | Path, span: range) -> int:
    """Returns how many runs of a span the store has."""
    return int(_rows(path, "SELECT count(*) FROM runs WHERE seq BETWEEN ? AND ?", span[0], span[-1])[0][0])


def documents(path: str | Path, span: range | None = None) -> set[str]:
    """Returns the digests of the passages that runs of a store saw: all runs, or those of a span."""
    with closing(StoreReader(path)) as store:
        return set().union(*store.each(_documents_at, span))


def _documents_at(connection: sqlite3.Connection, seqs: Iterable[int]) -> dict[int, set[str]]:
    """Returns the digests of the passages that the runs with these `seq` saw."""
    found: dict[int, set[str]] = {seq: set() for seq in seqs}
    for run, digest in chunks(connection, _DOCUMENTS, found):
        found[run].add(digest)
    return found


def fingerprint(digests: Iterable[str]) -> str:
    """Returns a digest of a set of passages."""
    return hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()[:12]


def _rows(path: str | Path, statement: str, *values: object) -> list[sqlite3.Row]:
    with closing(Database(Path(path), read_only=True)) as store, store.snapshot() as db:
        return db.execute(statement, values).fetchall()
