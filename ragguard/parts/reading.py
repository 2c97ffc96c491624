"""Reads the lines of one part: over all parts of a file exactly the lines that `store.runfile.read_lines` finds."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import IO, Any, cast

from ragguard.errors import RunFormatError, StoreError
from ragguard.parts.part import Part
from ragguard.storage.files.runfile import LONGEST_LINE, Line, line_of, raw_lines
from ragguard.storage.sqlite.filesystems import file_at, locate, opened_at, pyarrow_for

COLUMN = "run"
"""The column of a Parquet file that holds runs: in each row the text of one line of a run file."""
_ROWS_AT_ONCE = 256


def read_part(part: Part) -> Iterator[Line]:
    """Yields every line of a part that is not blank: its run, or the error in its place.

    The number of a line is the byte at which it begins in the file (in what was packed, for a packed file), or the row
    of a Parquet file; the errors name the same, and in a part that begins its file the number of the line, too.

    Args:
        part: The part, as `plan_parts` returns it.
    """
    place = locate(part.source)
    found = file_at(place)
    if found is None or (found.size, found.modified_ns) != (part.size, part.modified_ns):
        raise StoreError(
            f"{part.shown} {'is gone' if found is None else 'was changed'} since the parts were planned; "
            "run the same again when it is written"
        )
    with opened_at(place) as file:
        if part.kind == "parquet":
            yield from _rows(part, file)
        elif part.kind == "gzip":
            with gzip.open(file, "rb") as unpacked:
                yield from _lines(cast(IO[bytes], unpacked), 0, None)
        else:
            yield from _lines(file, part.start, part.end)


def _lines(file: IO[bytes], start: int, end: int | None) -> Iterator[Line]:
    """Yields the lines that begin at a byte from `start` to before `end`; None: up to the end of the file."""
    place = start
    if start:
        file.seek(start - 1)  # a line begins at `start` where a line ends just before it
        place += next((size for _, size in raw_lines(file, 0)), 0) - 1
    for number, (raw, size) in enumerate(raw_lines(file, LONGEST_LINE), 1):
        if end is not None and place >= end:
            return
        line = line_of(raw, size, place, "byte" if start else f"line {number}, byte")
        if line is not None:
            yield line
        place += size


def _rows(part: Part, file: IO[bytes]) -> Iterator[Line]:
    source = open_parquet(file, part.shown)
    first = 0
    for group in range(source.num_row_groups):
        behind = first + source.metadata.row_group(group).num_rows
        if first < part.end and behind > part.start:
            for row, value in _column(source, group, first):
                if part.start <= row < part.end:
                    line = _row(value, row)
                    if line is not None:
                        yield line
                elif row >= part.end:
                    return
        first = behind


def _column(source: Any, group: int, first: int) -> Iterator[tuple[int, Any]]:
    row = first
    for batch in source.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=[COLUMN]):
        for value in batch.column(0):
            yield row, value.as_py()
            row += 1


def _row(value: str | bytes | None, row: int) -> Line | None:
    if value is None:
        problem = RunFormatError(row, COLUMN, None, "a run as JSON; it is missing", unit="row")
        return Line(row, None, problem)
    raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return line_of(raw, len(raw), row, "row")


def open_parquet(file: IO[bytes], shown: str) -> Any:
    """Returns a Parquet file whose column `run` holds texts; raises StoreError where it has none."""
    pa = pyarrow_for("reading Parquet")
    source = pa.parquet.ParquetFile(file)
    at = source.schema_arrow.get_field_index(COLUMN)
    kind = source.schema_arrow.field(at).type if at >= 0 else None
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    if kind is None or not any(is_text(kind) for is_text in texts):
        has = "no column" if kind is None else f"no text but {kind} in its column"
        raise StoreError(
            f"{shown} has {has} {COLUMN!r}; in Parquet, each row of that column holds one line of a run file"
        )
    return source
