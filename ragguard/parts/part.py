"""A part of the input: a range of one run file that one process scores at a time, and the lines in it.

A part is identified by its content, not by its place: a file that was moved or renamed has the parts that it had.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, Literal, TypeAlias, cast

from ragguard.errors import RunFormatError, StoreError
from ragguard.storage.files.filesystems import file_at, locate, opened_at, pyarrow_for
from ragguard.storage.files.runfile import LONGEST_LINE, Line, line_of, raw_lines
from ragguard.text.secret_filter import without_secrets

PartKind: TypeAlias = Literal["lines", "gzip", "parquet"]
COLUMN = "run"
"""The column of a Parquet file that holds runs: in each row the text of one line of a run file."""
_ROWS_AT_ONCE = 256
_PIECE = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A range of one run file. Plain data, which any process that reaches the file can work on."""

    source: str
    """The file: an absolute path, or an address of pyarrow's."""
    kind: PartKind
    """`lines`: a run file, by bytes. `gzip`: a packed run file, which is one part. `parquet`: the column `run` of a
    Parquet file, by rows."""
    start: int
    """The first byte or row of the part; a part of lines begins with a line."""
    end: int
    """The first byte or row behind the part; a part of lines ends with a line."""
    bytes: int
    """About how many bytes of the file the part has."""
    content: str
    """A digest of the bytes that hold the runs of the part."""

    @property
    def shown(self) -> str:
        """The file without keys and passwords, for messages and records."""
        return without_secrets(self.source)

    def key(self, settings: str) -> str:
        """Returns the digest of all that decides about the part's results; the name of its files.

        Args:
            settings: The digest of the settings; see `PartJob`.
        """
        return digest_of([self.kind, self.content, settings])


def digest_of(value: object) -> str:
    """Returns a digest of plain data."""
    text = json.dumps(value, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]


def read_part(part: Part) -> Iterator[Line]:
    """Yields every line of a part that is not blank: its run, or the error in its place.

    The number of a line is the byte at which it begins in the file (in what was packed, for a packed file), or the row
    of a Parquet file; the errors name the same, and in a part that begins its file the number of the line, too.

    Args:
        part: The part, as `plan_parts` returns it.
    """
    place = locate(part.source)
    if file_at(place) is None:
        raise _changed(part, "is gone")
    with opened_at(place) as file:
        if content_of(file, part.kind, part.start, part.end, part.shown) != part.content:
            raise _changed(part, "was changed")
        file.seek(part.start if part.kind == "lines" else 0)
        if part.kind == "parquet":
            yield from _rows(part, file)
        elif part.kind == "gzip":
            with gzip.open(file, "rb") as unpacked:
                yield from _lines(cast(IO[bytes], unpacked), 0, None)
        else:
            yield from _lines(file, part.start, part.end)


def content_of(file: IO[bytes], kind: PartKind, start: int, end: int, shown: str) -> str:
    """Returns a digest of the bytes that hold the runs from `start` to before `end`: of lines these bytes, of a packed
    file the whole, of Parquet the column `run` in the row groups of these rows."""
    digest = hashlib.sha256()
    ranges = [(start, end)]
    if kind == "parquet":
        ranges = []
        first = 0
        metadata = open_parquet(file, shown).metadata
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            behind = first + group.num_rows
            if first < end and behind > start:
                digest.update(f"{start - first} {end - first} ".encode())
                ranges.append(_column_bytes(group))
            first = behind
    for begin, behind in ranges:
        file.seek(begin)
        while begin < behind and (piece := file.read(min(_PIECE, behind - begin))):
            digest.update(piece)
            begin += len(piece)
    return digest.hexdigest()[:32]


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


def _changed(part: Part, how: str) -> StoreError:
    return StoreError(
        f"{part.shown} {how} since the parts were planned; run the same again when it is written"
    )


def _column_bytes(group: Any) -> tuple[int, int]:
    """Returns the first byte of the column `run` in a row group, and the byte behind it."""
    columns = [group.column(number) for number in range(group.num_columns)]
    [column] = [column for column in columns if column.path_in_schema == COLUMN]
    begin = column.dictionary_page_offset or column.data_page_offset
    return begin, begin + column.total_compressed_size


def _lines(file: IO[bytes], start: int, end: int | None) -> Iterator[Line]:
    """Yields the lines of an open file, whose next one begins at the byte `start`, before the byte `end`; None: up to
    the end of the file."""
    place = start
    for number, (raw, size) in enumerate(raw_lines(file, LONGEST_LINE), 1):
        if end is not None and place >= end:
            return
        line = line_of(raw, size, place, "byte" if start else f"line {number}, byte")
        if line is not None:
            yield line
        place += size


def _rows(part: Part, file: IO[bytes]) -> Iterator[Line]:
    source = open_parquet(file, part.shown)
    row = 0
    for group in range(source.num_row_groups):
        behind = row + source.metadata.row_group(group).num_rows
        if row < part.end and behind > part.start:
            for batch in source.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=[COLUMN]):
                for number, value in enumerate(batch.column(0), row):
                    line = _row(value.as_py(), number) if part.start <= number < part.end else None
                    if line is not None:
                        yield line
                row += len(batch)
        row = behind


def _row(value: str | bytes | None, row: int) -> Line | None:
    if value is None:
        problem = RunFormatError(row, COLUMN, None, "a run as JSON; it is missing", unit="row")
        return Line(row, None, problem)
    raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return line_of(raw, len(raw), row, "row")
