"""Reads a folder of scored parts through the same methods as a store of the same runs: those of `ScoredSource` in
`source.py`.

Parts are read some at a time, so that memory does not grow with the folder. A folder holds no texts of passages: they
come from the run files, where these are given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import compute, parquet

from ragguard.errors import SchemaMismatch, StoreError
from ragguard.records import Failure, Level, Run, ScoredRun
from ragguard.runtime.faults import describe
from ragguard.runtime.once import computed_once
from ragguard.storage.files.part_repeats import RepeatedRuns, find_repeats
from ragguard.storage.files.partfolder import PartFolder
from ragguard.storage.files.parttables import FORMAT, LATER, PartCounts, Table, table_schemas
from ragguard.storage.files.score_columns import (
    FOR_MEANS,
    FOR_OUTLINES,
    FOR_RECORDS,
    PartTables,
    failures_of_batch,
    means_of_batch,
    outlines_of_batch,
    scored_runs_of_batch,
)
from ragguard.storage.files.score_lines import FOR_LINES, FOR_SUMMARIES, lines_of_batch, summaries_of_batch
from ragguard.storage.sqlite.means import RunMeans
from ragguard.storage.sqlite.overview import Overview, RunLine, ScoreSummary, overview_of

BATCH_BYTES = 24 * 2**20
"""The approximate number of bytes of score files that are read at once: those of about a million scores."""
READERS = 8
"""The number of files that are read at the same time."""
_COUNTED = ("run_id",)
_TOTALS = ("runs", "failed_runs", "failures", "rejected")


class PartsSource:
    """The complete parts of a folder, with their runs in the order of the input."""

    def __init__(self, address: str | Path, runs: Callable[[], Iterable[Run]] | None = None) -> None:
        """Opens a folder. `runs` gives the runs of the input with their texts; it is called when they are needed."""
        self._folder, self._runs = PartFolder(address), runs
        if self._folder.settings() is None:
            raise StoreError(
                f"{self._folder} is no folder of scored parts: it has no settings; name the folder of "
                "`ragguard score … --out DIR`, or a store"
            )
        finished, planned = self._folder.finished(), self._folder.planned()
        order = {key: place for place, key in enumerate(planned)}
        self._keys = sorted(finished, key=lambda key: (order.get(key, len(order)), key))
        self._missing = len(order.keys() - set(finished))
        if not self._keys:
            raise StoreError(
                f"{self._folder} has no complete part yet; the same `ragguard score` command goes on with it"
            )
        self._without_texts = 0

    @property
    def has_texts(self) -> bool:
        """True where the run files were given."""
        return self._runs is not None

    @computed_once
    def _counts(self) -> list[PartCounts]:
        table = self._table("parts", self._keys)
        return [PartCounts.of_row(row) for row in table.to_pylist()]

    @property
    def remarks(self) -> list[str]:
        """The facts that a reader of the numbers has to know: what is missing, failed, rejected or without texts."""
        said = []
        if self._missing:
            said.append(
                f"{self._folder} is not complete: {self._missing:,} of {self._missing + len(self._keys):,} parts are "
                "missing, and their runs with them; the same `ragguard score` command goes on with them"
            )
        total = {name: sum(getattr(one, name) for one in self._counts) for name in _TOTALS}
        if total["failures"]:
            said.append(
                f"{self._folder}: {total['failures']:,} scores failed, in {total['failed_runs']:,} of "
                f"{total['runs']:,} runs; most often {self._reason()}"
            )
        if total["rejected"]:
            said.append(
                f"{self._folder}: {total['rejected']:,} lines of the input were rejected and not scored"
            )
        if twice := self._repeats.count:
            said.append(
                f"{self._folder}: {twice:,} run ids stand twice; the first run of each is read, and the others are "
                "left out"
            )
        if self._without_texts:
            said.append(
                f"{self._folder}: {self._without_texts:,} runs are not in the run files and come without texts"
            )
        return said

    def _reason(self) -> str:
        reasons: Counter[str] = Counter()
        for one in self._counts:
            reasons.update(one.reasons)
        return max(reasons, key=lambda reason: reasons[reason], default="for a reason that was not noted")

    def run_ids(self) -> list[str]:
        """Returns the ids of all runs of the complete parts."""
        found: list[str] = self._table("runs", self._keys, ("run_id",))["run_id"].to_pylist()
        return found

    def scored_run(self, run_id: str) -> ScoredRun | None:
        """Returns one run with its scores and failures: from the run files where they are given and have the run, else
        a run made from the ids in its scores."""
        batch = self._batch_of(run_id)
        if batch is None:
            return None
        [outline] = outlines_of_batch(batch)
        found = next((run for run in self._runs() if _is_same(run, outline)), None) if self._runs else None
        self._without_texts = int(self.has_texts and found is None)
        return replace(next(scored_runs_of_batch(batch)), run=found or outline)

    def _batch_of(self, run_id: str) -> PartTables | None:
        """Returns the tables of one run; None where no complete part has it."""
        for key in self._keys:
            runs = self._table("runs", [key])
            head = runs.filter(compute.equal(runs["run_id"], run_id))
            if len(head):
                columns = (*dict.fromkeys((*FOR_RECORDS, *FOR_OUTLINES)),)
                scores, failures = (
                    table.filter(compute.equal(table["run_id"], run_id))
                    for table in (self._table("scores", [key], columns), self._table("failures", [key]))
                )
                return PartTables(str(self._folder), head[:1], scores, failures)
        return None

    def scored_runs(self, *, texts: bool = True, level: Level | None = None) -> Iterator[ScoredRun]:
        """Yields all runs with their failures and scores, of one level if named; runs without texts have no steps."""
        found = self._found_runs() if texts else None
        for batch in self._batches(FOR_RECORDS, None):
            for scored in scored_runs_of_batch(batch, level):
                run = found.take(scored.run) if found is not None else None
                yield scored if run is None else replace(scored, run=run)
        self._note(found)

    def lines(self, misleads: float) -> Iterator[RunLine]:
        """Yields all runs for a list of them; a passage that the model got counts as misleading where its
        utility is under `misleads`."""
        for batch in self._batches(FOR_LINES, _COUNTED):
            yield from lines_of_batch(batch, misleads)

    def overviews(self, misleads: float) -> Iterator[Overview]:
        """Yields all runs for a page. A passage without text is shown by its id."""
        found = self._found_runs()
        for batch in self._batches(FOR_SUMMARIES, None):
            summaries, failures = summaries_of_batch(batch, misleads), failures_of_batch(batch)
            for outline, summary, failed in zip(outlines_of_batch(batch), summaries, failures, strict=True):
                run = found.take(outline) if found is not None else None
                yield (
                    _overview(outline, summary, failed) if run is None else overview_of(run, summary, failed)
                )
        self._note(found)

    def means(self) -> Iterator[RunMeans]:
        """Yields all runs for a comparison."""
        for batch in self._batches(FOR_MEANS, _COUNTED):
            yield from means_of_batch(batch)

    def close(self) -> None:
        """Does nothing: no file stays open."""

    def _found_runs(self) -> _FoundRuns | None:
        return None if self._runs is None else _FoundRuns(self._runs(), set(self.run_ids()))

    def _note(self, found: _FoundRuns | None) -> None:
        self._without_texts = 0 if found is None else found.missing

    def _batches(self, scores: Sequence[str], failures: Sequence[str] | None) -> Iterator[PartTables]:
        """Yields the tables of a few parts at a time, with these columns of scores and failures; None: all columns."""
        keys: list[str] = []
        size = 0
        infos = self._folder.place.filesystem.get_file_info(self._folder.paths("scores", self._keys))
        for key, info in zip(self._keys, infos, strict=True):
            if keys and size + (info.size or 0) > BATCH_BYTES:
                yield self._batch(keys, scores, failures)
                keys, size = [], 0
            keys.append(key)
            size += info.size or 0
        yield self._batch(keys, scores, failures)

    def _batch(
        self, keys: Sequence[str], scores: Sequence[str], failures: Sequence[str] | None
    ) -> PartTables:
        return PartTables(
            str(self._folder), self._table("runs", keys), self._table("scores", keys, scores),
            failures=self._table("failures", keys, failures),
        )  # fmt: skip

    def _table(self, table: Table, keys: Sequence[str], columns: Sequence[str] | None = None) -> Any:
        """Returns a table of some parts in order, without repeated runs; raises where a file is damaged."""
        tables = self._files(table, keys, columns)
        if table != "parts":
            tables = [self._repeats.without(table, key, one) for key, one in zip(keys, tables, strict=True)]
        return pa.concat_tables(tables)

    @computed_once
    def _repeats(self) -> RepeatedRuns:
        hashes = [one["run_hash"].to_numpy() for one in self._files("runs", self._keys, ("run_hash",))]
        return find_repeats(self._keys, hashes, lambda key, columns: self._file("runs", key, columns))

    def _files(self, table: Table, keys: Sequence[str], columns: Sequence[str] | None) -> list[Any]:
        with ThreadPoolExecutor(min(READERS, len(keys)), thread_name_prefix="ragguard-reader") as readers:
            return list(readers.map(lambda key: self._file(table, key, columns), keys))

    def _file(self, table: Table, key: str, columns: Sequence[str] | None) -> Any:
        [path] = self._folder.paths(table, [key])
        shown = f"{table}/{key}.parquet in {self._folder}"
        try:
            with self._folder.place.filesystem.open_input_file(path) as source:
                metadata = parquet.read_metadata(source)
                texts = {one.name for one in self._schemas[table] if one.type == pa.string()}
                # Arrow keeps texts that repeat as distinct texts and a number for each row.
                repeating = texts & {*metadata.schema.names} if table in ("scores", "failures") else ()
                file = parquet.ParquetFile(source, metadata=metadata, read_dictionary=[*repeating])
                schema = file.schema_arrow
                version = (schema.metadata or {}).get(b"format", b"none").decode("utf-8", "replace")
                lacking = sorted({*(columns or self._schemas[table].names)} - {*schema.names})
                later = [name for name in lacking if name in LATER.get(table, ())]
                lacking = [name for name in lacking if name not in later]
                if version == FORMAT and not lacking:
                    found = file.read(
                        None if columns is None else [name for name in columns if name not in later]
                    )
                    found.validate(full=True)
                    for name in later:
                        one = self._schemas[table].field(name)
                        found = found.append_column(one, pa.nulls(len(found), one.type))
                    return found
        except (OSError, pa.ArrowException) as error:
            raise StoreError(
                f"{shown} could not be read ({describe(error)}); remove parts/{key}.parquet, and the same `ragguard "
                "score` command makes this part anew"
            ) from error
        if version == FORMAT:
            raise StoreError(f"{shown} lacks the columns {', '.join(lacking)}; score into a new folder")
        raise SchemaMismatch(
            f"{shown} has the format {version!r}, and this ragguard knows {FORMAT!r}: read it with the ragguard that "
            "wrote it"
        )

    @computed_once
    def _schemas(self) -> dict[Table, Any]:
        return table_schemas(pa)


class _FoundRuns:
    """Finds the runs of the run files in the order of the folder; keeps those that the files have earlier."""

    def __init__(self, runs: Iterable[Run], wanted: set[str]) -> None:
        self._rest, self._wanted = iter(runs), wanted
        self._kept: dict[str, Run] = {}
        self.missing = 0
        """The number of runs that were asked for and not found."""

    def take(self, head: Run) -> Run | None:
        """Returns the run of this id and question; None where the files do not have it."""
        found = self._kept.pop(head.id, None)
        self._wanted.discard(head.id)
        while found is None and (run := next(self._rest, None)) is not None:
            if run.id == head.id:
                found = run
            elif run.id in self._wanted:
                self._kept[run.id] = run
        if found is not None and _is_same(found, head):
            return found
        self.missing += 1
        return None


def _is_same(run: Run, head: Run) -> bool:
    return run.id == head.id and run.question == head.question


def _overview(outline: Run, summary: ScoreSummary, failures: list[Failure]) -> Overview:
    """Returns the overview of a run that comes without texts: passages are shown by their ids."""
    found = overview_of(outline, summary, failures)
    for line, step in zip(found.steps, outline.steps, strict=True):
        line.texts[:] = [f"({passage.id})" if passage.id else "" for passage in step.passages]
    return found
