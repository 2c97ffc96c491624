"""The formats that hold runs: one table with the name of each, how it is recognised, and how it is read.

The first format that recognises an input reads it. A reader yields a line for each run, with the problem in its place
if it cannot be read, and notes in `OpenInput.remarks` what else a user has to know.
"""

from __future__ import annotations

import csv
import json
import os
from codecs import iterdecode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar

from ragguard.errors import InvalidInput, MissingDependency, StoreError
from ragguard.inputs.columns import Columns, known_columns
from ragguard.records import Run
from ragguard.runtime.faults import describe
from ragguard.schema import record_type
from ragguard.storage.files.jsonl import LONGEST_LINE, JsonValue, first_lines, json_items, raw_lines
from ragguard.storage.files.runfile import Line, line_of_value
from ragguard.storage.sqlite.database import is_store
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.traces.pulled import SCHEMES
from ragguard.traces.reader import TracedRuns, read
from ragguard.traces.trace_spans import is_trace_data

T = TypeVar("T")
Row: TypeAlias = "Mapping[str, Any] | InvalidInput"
"""A row of a table by its columns, or what is wrong with it."""
_PARQUET = b"PAR1"
_DELIMITERS = (",", ";", "\t")
RUN_FILE, TRACES = "a run file", "traces"
_BATCH = 256
"""How many rows of Parquet or Arrow are in memory at once."""
WANTED = (
    "a run file, traces or a trajectory in JSON, a store, or a table (CSV, JSON lines, Parquet) with columns such as "
    "question, contexts, answer, reference"
)
"""The inputs that can be read, for errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options by which a user describes an input."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns of a table by what they hold: see `columns.NAMES`."""
    separator: str = ""
    """The text between the contexts in a cell of a table."""
    since: str = ""
    """The time since which traces of a server began."""
    tools: Sequence[str] = ()
    """Tools whose results are retrieved passages, whatever their form, such as `read_file`."""


@dataclass(slots=True)
class OpenInput:
    """An input that is being read, as far as it was looked into to recognise it."""

    path: str
    options: ReadOptions
    first: bytes = b""
    """The first line that is not blank; empty for what has no lines, such as a store."""
    lines: Iterable[tuple[bytes, int]] = ()
    """All lines with their sizes, the first one included."""
    position: Callable[[], int] = lambda: 0
    """Returns how many bytes of the file are read."""
    on_position: Callable[[int], object] = lambda _: None
    """Called with the number of bytes that are read."""
    values: Iterable[JsonValue] = ()
    """The values of a file of JSON, in order."""
    head: object = None
    """The first of these values; None for any other file."""
    remarks: Counter[str] = field(default_factory=Counter)
    """The remarks on what was not understood, each with how often it was made."""
    is_empty: bool = False
    """True for a file without a line, which holds no runs."""
    rejected: int = 0
    """How many lines a reader rejected and named in a remark, in place of a problem."""

    @classmethod
    def of(
        cls,
        path: str,
        options: ReadOptions,
        file: IO[bytes],
        position: Callable[[], int],
        on_position: Callable[[int], object],
    ) -> OpenInput:
        """Looks into a file up to its first value."""
        coming = raw_lines(file)
        before = [*first_lines(coming)]
        source = cls(path, options, before[-1][0].strip() if before else b"", chain(before, coming))
        source.position, source.on_position, source.is_empty = position, on_position, not source.first
        if source.first[:1] in (b"{", b"[") or source.first[:4] == b"\xef\xbb\xbf{":
            values = json_items(source.lines)
            first = [value for value in (next(values, None),) if value is not None]
            source.values = source.noting(chain(first, values))
            source.head = first[0].data if first else None
        return source

    def noting(self, items: Iterable[T]) -> Iterator[T]:
        """Yields items of a file and notes behind each how much of the file is read."""
        for item in items:
            yield item
            self.on_position(self.position())

    def header(self) -> tuple[str, list[str]]:
        """Returns the delimiter of a table of text and the names in its first line."""
        text = self.first.decode("utf-8-sig", "replace")
        headers = {mark: next(csv.reader(text.splitlines()[:1], delimiter=mark), []) for mark in _DELIMITERS}
        columns = {*self.options.columns.values()}

        def known(delimiter: str) -> tuple[int, int]:
            names = headers[delimiter]
            return len({*known_columns(names).values()} | (columns & {*names})), len(names)

        best = max(_DELIMITERS, key=known)
        return best, headers[best]

    def rows(self, rows: Iterable[tuple[int, Row]], header: Sequence[str], unit: str) -> Iterator[Line]:
        """Yields the lines of the numbered rows of a table."""
        columns: Columns | None = None
        for number, row in rows:
            columns = columns or self._columns(header, row)
            wrong = row if isinstance(row, InvalidInput) else None
            yield line_of_value(JsonValue(number, row, wrong), unit, columns.run)

    def _columns(self, header: Sequence[str], first: object) -> Columns:
        row = first if isinstance(first, Mapping) else {}
        options = self.options
        return Columns.of(
            header, options.columns, options.separator, path=self.path, first=row, remarks=self.remarks
        )


@dataclass(frozen=True, slots=True)
class Format:
    """A format: its name in sentences, by what it is recognised, and its reader."""

    name: str
    recognises: Callable[[OpenInput], bool]
    read: Callable[[OpenInput], Iterator[Line]]


def _is_address(source: OpenInput) -> bool:
    return source.path.startswith(SCHEMES)


def _is_parquet(source: OpenInput) -> bool:
    return source.first[:4] == _PARQUET


def _is_data_set(source: OpenInput) -> bool:
    return any((Path(source.path) / name).is_file() for name in ("state.json", "dataset_dict.json"))


def _is_traces(source: OpenInput) -> bool:
    return is_trace_data(source.head)


def _is_json_table(source: OpenInput) -> bool:
    """True for an object that has more columns of a table than fields of a run."""
    data = source.head
    if not isinstance(data, dict) or "steps" in data or "format" in data:
        return False
    columns = {**known_columns(data), **source.options.columns}
    return "contexts" in columns or not data.keys() <= _RUN_FIELDS


_RUN_FIELDS = frozenset(record_type(Run).names)


def _is_json(source: OpenInput) -> bool:
    return source.first[:1] in (b"{", b"[") or source.head is not None


def _is_text_table(source: OpenInput) -> bool:
    if b"\0" in source.first or not source.first:
        return False
    named = source.path.removesuffix(".gz").endswith((".csv", ".tsv"))
    return named or bool(source.options.columns or known_columns(source.header()[1]))


def _read_traces(source: OpenInput) -> Iterator[Line]:
    if _is_address(source):
        reading = read(source.path, since=source.options.since, tools=source.options.tools)
    else:
        reading = TracedRuns(source.values, tools=source.options.tools)
    for number, trace in enumerate(reading, 1):
        if trace.run.steps:
            yield Line(number, trace.run, None)
    source.remarks.update(reading.remarks)
    source.rejected += reading.counts["lines rejected"]


def _read_store(source: OpenInput) -> Iterator[Line]:
    with closing(StoreReader(source.path)) as store:
        size, count = os.path.getsize(source.path), max(1, store.run_count())
        # Each is read when its turn comes: scoring the runs before it may take hours, in which it may go on.
        for number, run_id in enumerate(store.run_ids(), 1):
            source.on_position(size * number // count)
            run = store.run(run_id)
            if run is not None and run.status == "open":
                source.remarks["a run that has not ended is left out"] += 1
            elif run is not None:
                yield Line(number, run, None)


def _read_run_file(source: OpenInput) -> Iterator[Line]:
    return map(line_of_value, source.values)


def _read_json_table(source: OpenInput) -> Iterator[Line]:
    header = [*source.head] if isinstance(source.head, dict) else []
    return source.rows(((value.number, _row_in(value)) for value in source.values), header, "line")


def _row_in(value: JsonValue) -> Row:
    if value.problem is not None:
        return value.problem
    return value.data if isinstance(value.data, dict) else InvalidInput("", value.data, "an object")


def _read_text_table(source: OpenInput) -> Iterator[Line]:
    delimiter, _ = source.header()
    csv.field_size_limit(LONGEST_LINE)
    text = iterdecode((raw for raw, _ in source.lines), "utf-8-sig")
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    try:
        header = next((row for row in reader if row), [])
        yield from source.rows(source.noting(_text_rows(reader, header)), header, "line")
    except (csv.Error, UnicodeDecodeError) as error:
        allowed = "cells as CSV has them: a quote inside quotes is doubled"
        if isinstance(error, UnicodeDecodeError):
            allowed = "UTF-8; `iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW` makes it so"
        raise InvalidInput(f"{source.path}, line {reader.line_num + 1}", str(error), allowed) from error


def _text_rows(reader: Any, header: Sequence[str]) -> Iterator[tuple[int, Row]]:
    """Yields the rows of CSV, each with the number of its first line."""
    ended = reader.line_num
    for cells in reader:
        number, ended = ended + 1, reader.line_num
        if len(cells) == len(header):
            yield number, dict(zip(header, cells, strict=True))
        elif cells:
            yield number, InvalidInput("cells", len(cells), f"{len(header)}, as in the first line")


def _read_parquet(source: OpenInput) -> Iterator[Line]:
    parquet = arrow_module("parquet", "Parquet")
    try:
        file = parquet.ParquetFile(source.path)
        size, count = os.path.getsize(source.path), max(1, file.metadata.num_rows)
        rows = (row for batch in file.iter_batches(batch_size=_BATCH) for row in batch.to_pylist())
        for line in source.rows(enumerate(rows, 1), list(file.schema_arrow.names), "row"):
            source.on_position(size * line.number // count)
            yield line
    except (OSError, arrow_module("lib", "Parquet").ArrowException) as error:
        raise StoreError(f"{source.path} could not be read as Parquet ({error}); check the file") from error


def _read_data_set(source: OpenInput) -> Iterator[Line]:
    """Reads what `save_to_disk` of Hugging Face's `datasets` wrote: a folder with files of Arrow."""
    folder = Path(source.path)
    try:
        if not (folder / "state.json").is_file():
            splits = json.loads((folder / "dataset_dict.json").read_bytes())["splits"]
            allowed = f"one of its splits: {', '.join(str(folder / name) for name in splits)}"
            raise InvalidInput("data set", source.path, allowed)
        state = json.loads((folder / "state.json").read_bytes())
        names = [file["filename"] for file in state["_data_files"]]
        ipc = arrow_module("ipc", "a data set of Hugging Face")
        header = list(ipc.open_stream(str(folder / names[0])).schema.names)
        rows = (
            row
            for name in names
            for batch in ipc.open_stream(str(folder / name))
            for row in batch.to_pylist()
        )
        yield from source.rows(enumerate(rows, 1), header, "row")
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise StoreError(
            f"{folder} could not be read as a data set ({describe(error)}); write it again with save_to_disk"
        ) from error


def arrow_module(name: str, purpose: str) -> Any:
    """Returns a module of pyarrow; raises MissingDependency with the line that installs it."""
    try:
        return import_module(f"pyarrow.{name}")
    except ImportError as error:
        raise MissingDependency("pyarrow", purpose, "arrow") from error


FORMATS: tuple[Format, ...] = (
    Format("a server of traces", _is_address, _read_traces),
    Format("a store", lambda source: is_store(source.path), _read_store),
    Format("a data set of Hugging Face", _is_data_set, _read_data_set),
    Format("Parquet", _is_parquet, _read_parquet),
    Format(TRACES, _is_traces, _read_traces),
    Format("a table in JSON", _is_json_table, _read_json_table),
    Format(RUN_FILE, _is_json, _read_run_file),
    Format("a table in CSV", _is_text_table, _read_text_table),
)
"""Every format, in the order in which they are tried."""
