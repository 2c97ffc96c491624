"""Plans the parts of an input: which files hold runs, and which ranges of them one process scores at a time.

Planning reads the whole input once, since a part is identified by its content.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from ragguard.errors import InvalidInput, StoreError
from ragguard.parts.part import Part, content_of
from ragguard.storage.files.partfolder import is_part_folder, local_path
from ragguard.storage.files.runfile import raw_lines
from ragguard.storage.sqlite.files import is_store

SMALLEST_PART = 64 * 2**10
LARGEST_PART = 16 * 2**20
"""Bytes: about a thousand runs, which is what a lost process may cost."""
_PARTS_A_WORKER = 16
_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
"""How the names of files end that a folder is searched for."""


def find_runs(inputs: Sequence[str | Path]) -> list[Path]:
    """Returns the files with runs that some inputs name, each once; raises StoreError for an input that has none.

    Args:
        inputs: Run files, and folders that are searched for `.jsonl`, `.jsonl.gz`, `.ndjson` and `.ndjson.gz`. Links to
            folders are not followed, and names that begin with `.` or `_` are left out.
    """
    if isinstance(inputs, str | Path):
        raise InvalidInput("inputs", str(inputs), "a list of files and folders")
    return list(dict.fromkeys(file for given in inputs for file in _files_of(given)))


def part_bytes(size: int, workers: int) -> int:
    """Returns how many bytes a part should have, so that each worker gets some parts and none is too much to lose.

    Args:
        size: The bytes of all files.
        workers: How many processes score.
    """
    return max(SMALLEST_PART, min(LARGEST_PART, size // (_PARTS_A_WORKER * max(1, workers))))


def plan_parts(files: Sequence[Path], size: int = LARGEST_PART) -> list[Part]:
    """Returns the parts of some files, in order: the same for the same files and size.

    Args:
        files: The files, as `find_runs` returns them.
        size: About how many bytes a part has. A packed file is always one part.
    """
    if size < 1:
        raise InvalidInput("size", size, "1 byte or more")
    return [part for file in files for part in _parts_of(file, size)]


def _parts_of(path: Path, size: int) -> Iterator[Part]:
    if is_store(path):
        raise StoreError(
            f"{path} is a store, which one process reads: score it without --on, or write its runs to a run file "
            "first, with `ragguard.write_runs`"
        )
    with open(path, "rb") as file:
        whole = path.stat().st_size
        packed = path.name.endswith(".gz")
        for start, end in [(0, whole)] if packed and whole else _line_ranges(file, whole, size):
            yield Part(source=str(path), start=start, end=end, content=content_of(file, start, end))


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
    if str(given) == "-":
        raise InvalidInput(
            "input", "-", "files and folders, which several processes can read; without --on also `-`"
        )
    path = local_path("input", given)
    if is_part_folder(path):
        raise StoreError(f"{path} is a folder of scores; name the run files that were scored")
    if path.is_file():
        return [path]
    if not path.exists():
        raise StoreError(f"{path} does not exist; check the path")
    if not path.is_dir():
        raise StoreError(
            f"{path} is neither a file nor a folder, and several processes cannot read it; write its runs to a file "
            "first"
        )
    runs = [
        file
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name.endswith(_SUFFIXES) and not _is_hidden(file.relative_to(path))
    ]
    if not any(file.stat().st_size for file in runs):
        allowed = ", ".join(f"*{suffix}" for suffix in _SUFFIXES)
        raise StoreError(f"{path} is a folder without runs; files with runs are called {allowed}")
    return runs


def _is_hidden(path: Path) -> bool:
    return any(name.startswith((".", "_")) for name in path.parts)
