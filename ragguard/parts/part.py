"""A part of the input: a range of one run file that one process scores at a time, and the lines in it.

A part is identified by its content, not by its place: a file that was moved or renamed has the parts that it had.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from ragguard.errors import StoreError
from ragguard.storage.files.runfile import LONGEST_LINE, Line, line_of, opened, raw_lines

_PIECE = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A range of one run file. Plain data, which any process that sees the file can work on."""

    source: str
    """The absolute path of the file."""
    start: int
    """The first byte of the part; it begins with a line. A packed file is one part."""
    end: int
    """The first byte behind the part; it ends with a line."""
    content: str
    """A digest of the bytes from `start` to `end`."""

    @property
    def packed(self) -> bool:
        """True for a file that is packed with gzip."""
        return self.source.endswith(".gz")

    @property
    def bytes(self) -> int:
        """The size of the part in the file."""
        return self.end - self.start

    def key(self, settings: str) -> str:
        """Returns the digest of all that decides about the part's results; the name of its files.

        Args:
            settings: The digest of the settings; see `PartJob`.
        """
        return digest_of([self.packed, self.content, settings])


def digest_of(value: object) -> str:
    """Returns a digest of plain data."""
    text = json.dumps(value, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]


def read_part(part: Part) -> Iterator[Line]:
    """Yields every line of a part that is not blank: its run, or the error in its place.

    The number of a line is the byte at which it begins in the file (in what was packed, for a packed file); the errors
    name the same, and in a part that begins its file the number of the line, too.

    Args:
        part: The part, as `plan_parts` returns it.
    """
    try:
        with open(part.source, "rb") as file:
            if content_of(file, part.start, part.end) != part.content:
                raise _changed(part, "was changed")
    except FileNotFoundError as error:
        raise _changed(part, "is gone") from error
    with opened(part.source) as (file, _):
        if not part.packed:
            file.seek(part.start)
        place = part.start
        for number, (raw, size) in enumerate(raw_lines(file, LONGEST_LINE), 1):
            if place >= part.end and not part.packed:
                return
            line = line_of(raw, size, place, "byte" if part.start else f"line {number}, byte")
            if line is not None:
                yield line
            place += size


def content_of(file: IO[bytes], start: int, end: int) -> str:
    """Returns a digest of the bytes from `start` to before `end`."""
    digest = hashlib.sha256()
    file.seek(start)
    while start < end and (piece := file.read(min(_PIECE, end - start))):
        digest.update(piece)
        start += len(piece)
    return digest.hexdigest()[:32]


def _changed(part: Part, how: str) -> StoreError:
    return StoreError(
        f"{part.source} {how} since the parts were planned; run the same again when it is written"
    )
