"""Parts of an input: ranges of run files that one process scores at a time, their plan, and the lines in them.

A part is identified by its content, not by its place: a file that was moved or renamed has the parts that it had. So
planning reads the whole input once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ragguard.errors import InvalidInput, StoreError
from ragguard.inputs.formats import RUN_FILE
from ragguard.inputs.reading import RunReading
from ragguard.storage.files.jsonl import opened, raw_lines
from ragguard.storage.files.partfolder import local_path
from ragguard.storage.files.runfile import Line, line_of
from ragguard.storage.sqlite.database import is_store

SMALLEST_PART = 64 * 2**10
LARGEST_PART = 16 * 2**20
"""Bytes: about a thousand runs, which is what a lost process may cost."""
_PARTS_A_WORKER = 16
_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
"""How the names of files end that a folder is searched for."""
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

    def key(self, settings: str) -> str:
        """Returns the digest of all that decides about the part's results; the name of its files.

        Args:
            settings: The digest of the settings; see `PartJob`.
        """
        return digest_of([self.packed, self.content, settings])

    def __str__(self) -> str:
        return f"{self.source}, bytes {self.start:,} to {self.end:,}"


def digest_of(value: object) -> str:
    """Returns a digest of plain data."""
    text = json.dumps(value, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]


def find_runs(inputs: Sequence[str | Path]) -> list[Path]:
    """Returns the files with runs that some inputs name, each once; raises StoreError for an input that has none.

    Args:
        inputs: Run files, and folders that are searched for `.jsonl`, `.jsonl.gz`, `.ndjson` and `.ndjson.gz`. Links to
            folders are not followed, and names that begin with `.` or `_` are left out.
    """
    return list(dict.fromkeys(file for given in inputs for file in _files_of(given)))


def plan_parts(files: Sequence[Path], size: int) -> list[Part]:
    """Returns the parts of some files, in order: the same for the same files and size.

    Args:
        files: The files, as `find_runs` returns them.
        size: About how many bytes a part has. A packed file is always one part.
    """
    parts = []
    for path in files:
        with open(path, "rb") as file:
            whole = path.stat().st_size
            packed = path.name.endswith(".gz") and whole
            for start, end in [(0, whole)] if packed else _line_ranges(file, whole, size):
                parts.append(Part(source=str(path), start=start, end=end, content=_content(file, start, end)))
    return parts


def part_bytes(files: Sequence[Path], workers: int) -> int:
    """Returns how many bytes a part should have, so that each worker gets some parts and none is too much to lose."""
    size = sum(file.stat().st_size for file in files)
    return max(SMALLEST_PART, min(LARGEST_PART, size // (_PARTS_A_WORKER * workers)))


def read_part(part: Part) -> Iterator[Line]:
    """Yields every line of a part that is not blank: its run, or the error in its place.

    The number of a line is the byte at which it begins in the file (in what was packed, for a packed file); the errors
    name the same, and in a part that begins its file the number of the line, too.
    """
    with opened(part.source) as (file, _):
        if not part.packed:
            if _content(file, part.start, part.end) != part.content:
                raise StoreError(
                    f"{part.source} was changed since the parts were planned; run the same again when it is written"
                )
            file.seek(part.start)
        place = part.start
        for number, (raw, size) in enumerate(raw_lines(file), 1):
            if place >= part.end and not part.packed:
                return
            line = line_of(raw, size, place, "byte" if part.start else f"line {number}, byte")
            if line is not None:
                yield line
            place += size


def _content(file: IO[bytes], start: int, end: int) -> str:
    """Returns a digest of the bytes from `start` to before `end`."""
    digest = hashlib.sha256()
    file.seek(start)
    while start < end and (piece := file.read(min(_PIECE, end - start))):
        digest.update(piece)
        start += len(piece)
    return digest.hexdigest()[:32]


def _line_ranges(file: IO[bytes], whole: int, size: int) -> Iterator[tuple[int, int]]:
    """Yields the first byte of each part and the byte behind it: at least `size` bytes, up to the end of a line."""
    start = 0
    while start < whole:
        last = min(start + size, whole) - 1
        file.seek(last)
        end = last + next((length for _, length in raw_lines(file, 0)), 1)
        yield start, end
        start = end


def _files_of(given: str | Path) -> list[Path]:
    path = local_path("input", given)
    if is_store(path):
        raise StoreError(f"{path} is a store, which one process reads: score it without --on")
    if path.is_file():
        return [_run_file(path)]
    if not path.exists():
        raise StoreError(f"{path} does not exist; name files and folders, which several processes can read")
    runs = [
        file
        for file in sorted(path.rglob("*"))
        if file.is_file()
        and file.name.endswith(_SUFFIXES)
        and not any(name.startswith((".", "_")) for name in file.relative_to(path).parts)
    ]
    if not runs:
        allowed = ", ".join(f"*{suffix}" for suffix in _SUFFIXES)
        raise StoreError(f"{path} has no files with runs: a file, or in a folder {allowed}")
    return [_run_file(file) for file in runs]


def _run_file(path: Path) -> Path:
    """Returns the path of a run file; raises StoreError for one that is known to be something else, whose parts no
    process could read alone."""
    with suppress(InvalidInput):
        known = RunReading(path).format()
        if known not in ("", RUN_FILE):
            lines = f"ragguard.write_runs(ragguard.runs_from({str(path)!r}), 'runs.jsonl')"
            raise StoreError(
                f"{path} is {known}: score it without --on, or write it as run lines first: "
                f'`python -c "import ragguard; {lines}"`'
            )
    return path
