"""Plans the parts of an input: which files hold runs, and which ranges of them one process scores at a time.

Planning reads the whole input once, since a part is identified by its content.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from ragguard.errors import InvalidInput, StoreError
from ragguard.parts.part import Part, PartKind, content_of, open_parquet
from ragguard.storage.files.filesystems import FileInfo, find_files, locate, opened_at
from ragguard.storage.files.partfolder import is_part_folder
from ragguard.storage.files.runfile import raw_lines
from ragguard.text.secret_filter import without_secrets

SMALLEST_PART = 64 * 2**10
LARGEST_PART = 16 * 2**20
"""Bytes: about a thousand runs, which is what a lost process may cost."""
_PARTS_A_WORKER = 16
_SUFFIXES: dict[str, PartKind] = {
    ".jsonl": "lines",
    ".ndjson": "lines",
    ".jsonl.gz": "gzip",
    ".ndjson.gz": "gzip",
    ".parquet": "parquet",
}
"""How the names of files end that a folder is searched for, and how they are read."""


def find_runs(inputs: Sequence[str | Path]) -> list[FileInfo]:
    """Returns the files with runs that some inputs name, each once; raises StoreError for an input that has none.

    Args:
        inputs: Files, and folders that are searched for `.jsonl`, `.jsonl.gz`, `.ndjson`, `.ndjson.gz` and
            `.parquet`; local paths or addresses of pyarrow's.
    """
    if isinstance(inputs, str | Path):
        raise InvalidInput("inputs", str(inputs), "a list of files and folders")
    files_by_address: dict[str, FileInfo] = {}
    for address in inputs:
        files_by_address |= {file.address: file for file in _files_of(address)}
    return list(files_by_address.values())


def part_bytes(files: Sequence[FileInfo], workers: int) -> int:
    """Returns how many bytes a part should have, so that each worker gets some parts and none is too much to lose."""
    wanted = sum(file.size for file in files) // (_PARTS_A_WORKER * max(1, workers))
    return max(SMALLEST_PART, min(LARGEST_PART, wanted))


def plan_parts(files: Sequence[FileInfo], size: int = LARGEST_PART) -> list[Part]:
    """Returns the parts of some files, in order: the same for the same files and size.

    Args:
        files: The files, as `find_runs` returns them.
        size: About how many bytes a part has. A packed file is always one part.
    """
    if size < 1:
        raise InvalidInput("size", size, "1 byte or more")
    return [part for file in files for part in _parts_of(file, size)]


def _parts_of(file: FileInfo, size: int) -> Iterator[Part]:
    if not file.size:
        return
    kind, place = _kind_of(file.address), locate(file.address)
    with opened_at(place) as opened:
        if kind == "parquet":
            ranges = _row_ranges(open_parquet(opened, place.shown).metadata, size)
        elif kind == "gzip":
            ranges = [(0, file.size, file.size)]
        elif opened.read(16) == b"SQLite format 3\0":
            raise StoreError(
                f"{place.shown} is a store, which one process reads: score it without --on, or write its runs to a "
                "run file first, with `ragguard.write_runs`"
            )
        else:
            ranges = [*_line_ranges(opened, file.size, size)]
        for start, end, weight in ranges:
            if end > start:
                content = content_of(opened, kind, start, end, place.shown)
                yield Part(
                    source=file.address, kind=kind, start=start, end=end, bytes=weight, content=content
                )


def _line_ranges(file: IO[bytes], whole: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Yields (first byte, byte behind, bytes) of each part: at least `size` bytes, up to the end of a line."""
    start = 0
    while start < whole:
        last = min(start + size, whole) - 1
        file.seek(last)
        end = last + next((length for _, length in raw_lines(file, 0)), 1)
        yield start, end, end - start
        start = end


def _row_ranges(metadata: Any, size: int) -> list[tuple[int, int, int]]:
    """Returns (first row, row behind, bytes) of each part: whole row groups, and large groups in equal pieces."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    sizes = [(int(group.num_rows), int(group.total_byte_size)) for group in groups]
    ranges: list[tuple[int, int, int]] = []
    first = rows = held = 0
    for count, weight in sizes:
        if held and held + weight > size:
            ranges.append((first, first + rows, held))
            first, rows, held = first + rows, 0, 0
        rows, held = rows + count, held + weight
        if held > size and rows > 1:
            pieces = min(rows, -(-held // size))
            cuts = [first + rows * piece // pieces for piece in range(pieces + 1)]
            ranges += [(a, b, held // pieces) for a, b in pairwise(cuts)]
            first, rows, held = first + rows, 0, 0
    return [*ranges, (first, first + rows, held)]


def _kind_of(address: str) -> PartKind:
    name = address.partition("?")[0] if "://" in address else address
    packed: PartKind = "gzip" if name.endswith(".gz") else "lines"
    return next((kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)), packed)


def _files_of(address: str | Path) -> list[FileInfo]:
    shown = without_secrets(str(address))
    if str(address) == "-":
        raise InvalidInput(
            "input", "-", "files and folders, which several processes can read; without --on also `-`"
        )
    if is_part_folder(address):
        raise StoreError(f"{shown} is a folder of scores; name the run files that were scored")
    files = find_files(address)
    if files is None:
        raise StoreError(f"{shown} does not exist; check the path")
    if len(files) == 1 and files[0].address == locate(address).address:
        return files
    runs = [file for file in files if file.address.partition("?")[0].endswith(tuple(_SUFFIXES))]
    if not any(file.size for file in runs):
        allowed = ", ".join(f"*{suffix}" for suffix in _SUFFIXES)
        raise StoreError(f"{shown} is a folder without runs; files with runs are called {allowed}")
    return runs
