"""Makes a temporary store of scored runs that stand in files: a folder of scored parts, or a score file.

All readers then read a store, so that a mean or a list is computed in one way. The file is removed when it is closed.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from ragguard.errors import StoreError
from ragguard.records import ScoredRun, Usage
from ragguard.storage.files.partfolder import PartFolder
from ragguard.storage.files.parttables import TABLES, PartCounts, Table
from ragguard.storage.files.scoretable import USAGE
from ragguard.storage.sqlite import schema
from ragguard.storage.sqlite.rows import STEP_COLUMNS, usage_text
from ragguard.storage.sqlite.score_rows import COLUMNS, insert_scores

_HEAD = ("id", "name", "question", "status", "started_ns", "ended_ns")
_FAILURE = ("step_id", "scorer", "error", "message", "will_retry", "attempts", "occurred_ns")
_ORIGIN = ("scorer", "version", "engine", "prompts", "references_hash", "reference_source")
_TOTALS = ("runs", "failed_runs", "failures", "rejected")


class TemporaryStore:
    """An SQLite file of a store's tables in a temporary folder, which is filled and then read as any store."""

    def __init__(self) -> None:
        folder = mkdtemp(prefix="ragguard-")
        self._remove = weakref.finalize(
            self, rmtree, folder, ignore_errors=True
        )  # at the latest as this process ends
        self.path = Path(folder) / "imported.db"
        self._db = schema.connect(str(self.path))
        schema.prepare(self._db, str(self.path))
        self._db.execute("PRAGMA journal_mode = OFF")  # nobody needs the file after this process
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute("BEGIN")
        self._ids: dict[str, int] = {}
        self._origins: dict[tuple[str, ...], int] = {}
        self._scores = 0

    def add_scored(self, scored: ScoredRun) -> None:
        """Adds the scores and failures of a run without steps. A run may come in several pieces."""
        run = scored.run
        [seq] = self._add_heads([(run.id, run.name, run.question, run.status, run.started_ns, run.ended_ns)])
        seq = seq or self._ids[run.id]
        insert_scores(self._db, seq, scored.scores)
        self._add(
            "failures",
            _FAILURE,
            ((seq, *(getattr(failure, name) for name in _FAILURE)) for failure in scored.failures),
        )

    def add_part(self, tables: Mapping[Table, Any]) -> int:
        """Adds a part from its tables, and returns how many of its runs were left out, since a run of the same id was
        there before."""
        columns = {
            table: {name: tables[table][name].to_pylist() for name in tables[table].column_names}
            for table in TABLES
        }
        heads = columns["runs"]
        seqs = self._add_heads(list(zip(heads["run_id"], *(heads[name] for name in _HEAD[1:]), strict=True)))
        runs_of = {
            table: list(chain.from_iterable(map(repeat, seqs, heads[table])))
            for table in TABLES if table != "runs"
        }  # fmt: skip
        for table, runs in runs_of.items():
            if len(runs) != len(tables[table]):
                raise StoreError(
                    f"the runs of a part count {len(runs):,} {table}, and it has {len(tables[table]):,}"
                )
        steps, failures = columns["steps"], columns["failures"]
        self._add(
            "steps", STEP_COLUMNS, zip(runs_of["steps"], *(steps[name] for name in STEP_COLUMNS), strict=True)
        )
        self._add(
            "failures",
            _FAILURE,
            zip(runs_of["failures"], *(failures[name] for name in _FAILURE), strict=True),
        )
        self._add_score_columns(runs_of["scores"], columns["scores"])
        return seqs.count(0)

    def finish(self) -> None:
        """Writes what was added; nothing can be added later."""
        self._db.executemany(
            f"INSERT OR IGNORE INTO origins (id, {', '.join(_ORIGIN)}) VALUES (?, ?, ?, ?, ?, ?, ?)",
            ((number, *values) for values, number in self._origins.items()),
        )
        self._db.execute("COMMIT")
        self._db.close()

    def close(self) -> None:
        """Removes the file."""
        self._db.close()
        self._remove()

    def _add_heads(self, heads: Sequence[tuple[Any, ...]]) -> list[int]:
        """Adds runs and returns their numbers in the tables; 0 for a run whose id was there before."""
        new: list[tuple[Any, ...]] = []
        seqs: list[int] = []
        for head in heads:
            seq = len(self._ids) + 1
            is_new = self._ids.setdefault(head[0], seq) == seq
            seqs.append(seq if is_new else 0)
            if is_new:
                new.append((seq, *head))
        self._db.executemany(
            f"INSERT INTO runs (seq, {', '.join(_HEAD)}, body) VALUES (?, ?, ?, ?, ?, ?, ?, '{{}}')", new
        )
        return seqs

    def _add(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
        """Adds rows whose first value is the number of their run; those of the number 0 are left out."""
        more = ", identity" if table == "failures" else ""
        values = ", ".join("?" * (len(columns) + 1)) + (", ''" if more else "")
        self._db.executemany(
            f"INSERT INTO {table} (run, {', '.join(columns)}{more}) VALUES ({values})",
            (row for row in rows if row[0]),
        )

    def _add_score_columns(self, runs: Sequence[int], scores: Mapping[str, list[Any]]) -> None:
        written: dict[tuple[Any, ...], str] = {}
        """The text of each usage: many scores have the same one."""
        usages: list[str] = []
        for usage in zip(*(scores[name] for name in USAGE), strict=True):
            if (text := written.get(usage)) is None:
                text = written[usage] = usage_text(Usage(**dict(zip(USAGE.values(), usage, strict=True))))
            usages.append(text)
        origins = [
            self._origins.setdefault(values, len(self._origins) + 1)
            for values in zip(*(scores[name] for name in _ORIGIN), strict=True)
        ]
        first = self._scores
        self._scores += len(runs)
        computed: dict[str, Iterable[Any]] = {
            "run": runs, "key": range(first, self._scores), "origin": origins, "usage": usages,
            "metadata": (text or "" for text in scores["metadata"]),
        }  # fmt: skip
        rows = zip(*(computed[name] if name in computed else scores[name] for name in COLUMNS), strict=True)
        self._add("scores", COLUMNS[1:], rows)


class ImportedParts:
    """A folder of scored parts in a temporary store, with the remarks that its readers make."""

    def __init__(self, address: str | Path) -> None:
        self._folder = PartFolder(address)
        if self._folder.settings() is None:
            raise StoreError(
                f"{self._folder} is no folder of scored parts: it has no settings; name the folder of "
                "`ragguard score … --out DIR`, or a store"
            )
        finished = self._folder.finished()
        order = {key: place for place, key in enumerate(self._folder.planned())}
        keys = sorted(finished, key=lambda key: (order.get(key, len(order)), key))
        self._missing = len(order.keys() - set(finished))
        if not keys:
            raise StoreError(
                f"{self._folder} has no complete part yet; the same `ragguard score` command goes on with it"
            )
        self._counts: list[PartCounts] = list(self._folder.counts(keys))
        self.store = TemporaryStore()
        try:
            self._repeated = sum(map(self.store.add_part, self._folder.tables(self._counts)))
            self.store.finish()
        except BaseException:
            self.store.close()
            raise

    @property
    def remarks(self) -> list[str]:
        """The facts that a reader of the numbers has to know: what is missing, failed, rejected or repeated."""
        remarks = []
        if self._missing:
            remarks.append(
                f"{self._folder} is not complete: {self._missing:,} of {self._missing + len(self._counts):,} parts are "
                "missing, and their runs with them; the same `ragguard score` command goes on with them"
            )
        total = {name: sum(getattr(part, name) for part in self._counts) for name in _TOTALS}
        if total["failures"]:
            remarks.append(
                f"{self._folder}: {total['failures']:,} scores failed, in {total['failed_runs']:,} of "
                f"{total['runs']:,} runs; most often {self._main_reason()}"
            )
        if total["rejected"]:
            remarks.append(
                f"{self._folder}: {total['rejected']:,} lines of the input were rejected and not scored"
            )
        if self._repeated:
            remarks.append(
                f"{self._folder}: {self._repeated:,} run ids stand twice; the first run of each is read, and the "
                "others are left out"
            )
        return remarks

    def _main_reason(self) -> str:
        reasons: Counter[str] = Counter()
        for part in self._counts:
            reasons.update(part.reasons)
        return max(reasons, key=lambda reason: reasons[reason], default="for a reason that was not noted")
