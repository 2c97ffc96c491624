"""Files of JSON lines: opened, read line by line in bounded memory, checked value by value, and written.

A line that cannot be read is a value with a problem, and the lines after it are read all the same. Every reader of
JSON lines (runs, scores, traces, tables, data sets) reads them here.
"""

from __future__ import annotations

import gzip
import json
import math
import stat
import sys
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, iterdecode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from os import stat as stat_of
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from ragguard.errors import InvalidInput, StoreError
from ragguard.runtime.arguments import is_file_name
from ragguard.runtime.faults import describe, why_unreadable

LONGEST_LINE = 64 * 2**20
"""The most bytes of one line."""
MOST_VALUES = 4_000_000
"""The most brackets and commas of one line, since sixty megabytes of `[],` would become 1.5 GB of lists."""
LONGEST_DOCUMENT = 256 * 2**20
"""The most bytes of a document that goes over several lines."""
_PIECE = 2**20


class JsonValue(NamedTuple):
    """The value of a line, or the problem in its place."""

    number: int
    """The number of the line, from 1."""
    data: Any
    problem: InvalidInput | None = None


def json_values(lines: Iterable[tuple[bytes, int]]) -> Iterator[JsonValue]:
    """Yields what each line of `raw_lines` holds that is not blank, in order."""
    for number, (raw, size) in enumerate(lines, 1):
        if not is_blank(raw, size):
            yield json_value(raw, size, number)


def json_items(lines: Iterable[tuple[bytes, int]]) -> Iterator[JsonValue]:
    """Yields what a file of JSON holds: the value of each line, or the items of the one list that it is, or the one
    object that goes over several lines."""
    waiting = iter(lines)
    before = [*first_lines(waiting)]
    first = before[-1][0].strip() if before else b""
    if first[:1] not in (b"[", b"{") or (first[:1] == b"{" and first[-1:] not in (b"{", b"[", b",")):
        yield from json_values(chain(before, waiting))
        return
    try:
        data = _document(chain(before, waiting))
    except InvalidInput as wrong:
        yield JsonValue(len(before), None, wrong)
        return
    for number, item in enumerate(data if isinstance(data, list) else [data], 1):
        yield JsonValue(number, item)


def first_lines(lines: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
    """Yields lines up to the first that is not blank."""
    for raw, size in lines:
        yield raw, size
        if not is_blank(raw, size):
            return


def _document(lines: Iterable[tuple[bytes, int]]) -> Any:
    """Returns the value of a file that is one document of JSON."""
    pieces, whole = list[bytes](), 0
    for raw, size in lines:
        whole += size
        if whole > LONGEST_DOCUMENT or size > len(raw):
            most = f"at most {LONGEST_DOCUMENT // 2**20} MiB in one document; JSON lines have no such limit"
            raise InvalidInput("length", f"over {whole:,} bytes", most)
        pieces.append(raw)
    try:
        return json_of_line(b"".join(pieces))
    except InvalidInput as wrong:
        why = wrong.allowed.partition("; ")[2]
        if wrong.argument != "JSON" or not why:
            raise
        raise InvalidInput("JSON", wrong.value, f"a whole document, which this is not: {why}") from wrong


def is_blank(raw: bytes, size: int) -> bool:
    """True for a line of `raw_lines` that holds nothing."""
    return not raw.strip() and size <= LONGEST_LINE


def json_value(raw: bytes, size: int, number: int) -> JsonValue:
    """Returns what a line of `raw_lines`, of `size` bytes, holds."""
    try:
        if size > LONGEST_LINE:
            raise InvalidInput("length", f"over {LONGEST_LINE} bytes", "shorter lines")
        return JsonValue(number, json_of_line(raw))
    except InvalidInput as wrong:
        return JsonValue(number, None, wrong)


def json_of_line(raw: bytes) -> Any:
    """Returns what a line or a body of JSON holds; raises InvalidInput for one that is none, or would not fit."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        allowed = to_utf8(raw) or f"UTF-8; {error.reason} at byte {error.start}"
        raise InvalidInput("text", raw[:40], allowed) from error
    if (values := text.count("[") + text.count("{") + text.count(",")) > MOST_VALUES:
        raise InvalidInput("JSON", f"{values:,} brackets and commas", f"at most {MOST_VALUES:,} in a line")
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise InvalidInput("JSON", text[:40], "less deeply nested") from error
    except ValueError as error:
        raise InvalidInput("JSON", text[:40], f"one JSON object a line; {error}") from error


def to_utf8(raw: bytes) -> str:
    """Returns how to make UTF-8 of a text that is UTF-16, as PowerShell writes it; "" for any other."""
    first = raw[:40]
    if first.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or first.count(0) * 2 >= max(2, len(first) - 1):
        return "UTF-8, which `iconv -f UTF-16 -t UTF-8 FILE > NEW` makes of UTF-16"
    return ""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON's")


def raw_lines(file: IO[bytes], longest: int | None = None) -> Iterator[tuple[bytes, int]]:
    """Yields lines with their lengths, read in pieces; of a line over `longest` bytes, 64 MiB unless another number is
    given, only the length is kept."""
    longest = LONGEST_LINE if longest is None else longest
    while piece := file.readline(_PIECE):
        pieces, size = [piece], len(piece)
        while not piece.endswith(b"\n") and (piece := file.readline(_PIECE)):
            size += len(piece)
            if size <= longest:
                pieces.append(piece)
            else:
                pieces.clear()
        yield b"".join(pieces), size


def check_readable(path: str | Path) -> None:
    """Raises where the file cannot be read, before any work is done."""
    try:
        if str(path) != "-" and stat.S_ISDIR(stat_of(path).st_mode):
            raise IsADirectoryError("it is a folder")
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


@contextmanager
def opened(path: str | Path) -> Iterator[tuple[IO[bytes], Callable[[], int]]]:
    """Opens a run file to read; yields it with a function that returns how many bytes of it are read. `-` is the
    standard input."""
    if str(path) == "-":
        yield sys.stdin.buffer, lambda: 0
        return
    _check_name(path, "read")
    try:
        with open(path, "rb") as file:
            position = file.tell if file.seekable() else lambda: 0  # a pipe has no position
            if str(path).endswith(".gz"):
                with gzip.open(file, "rb") as unpacked:
                    yield cast(IO[bytes], unpacked), position
            else:
                yield file, position
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error


def _check_name(path: str | Path, done: str) -> None:
    if not is_file_name(path):
        raise StoreError(f"{str(path)!a} could not be {done}: no file can have this name; check the path")


def _unreadable(path: str | Path, error: Exception) -> StoreError:
    return StoreError(f"{path} could not be read ({why_unreadable(error)}); check the path and the file")


@contextmanager
def writing(path: str | Path, kind: str = "file") -> Iterator[None]:
    """Raises StoreError, which names the path, where a file or a folder cannot be written inside."""
    _check_name(path, "written")
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path} could not be written ({why_unreadable(error)}); name another {kind}"
        ) from error


@contextmanager
def text_file(path: str | Path) -> Iterator[IO[str]]:
    """Opens a file of JSON lines to write, packed where its name ends in `.gz`."""
    opener = gzip.open if str(path).endswith(".gz") else open
    with writing(path), opener(path, "wt", encoding="ascii") as file:
        yield cast(IO[str], file)


class Fields:
    """An object of a data set, with its file and line for errors."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, Mapping):
            raise InvalidInput(where, data, "a JSON object")
        self.data, self.where = data, where

    def text(self, *names: str, default: str | None = None) -> str:
        """Returns the text, or the whole number as text, under the first of these names that has one."""
        for name in names:
            value = self.data.get(name)
            if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
                return str(value)
            if value is not None:
                raise self.wrong(name, value, "a text")
        if default is None:
            raise self.wrong(names[0], None, "needed; it is missing")
        return default

    def number(self, name: str) -> float | None:
        """Returns a number, where true and false count as 1 and 0; None where there is none."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self.wrong(name, value, "a number")
        return float(value)

    def texts(self, *names: str) -> tuple[str, ...]:
        """Returns a list of texts; one text is a list of one."""
        for name in names:
            value = self.data.get(name)
            if isinstance(value, str):
                return (value,)
            if isinstance(value, list) and all(isinstance(one, str) for one in value):
                return tuple(value)
            if value is not None:
                raise self.wrong(name, value, "a text or a list of texts")
        return ()

    def wrong(self, name: str, value: object, allowed: str) -> InvalidInput:
        """Returns the error for a field."""
        return InvalidInput(f"{self.where}, {name}", value, allowed)


def json_lines(path: str | Path) -> Iterator[Fields]:
    """Yields the objects of a file of JSON lines; raises the error of a line that cannot be read."""
    with opened(path) as (file, _):
        for value in json_values(raw_lines(file)):
            where = f"{path}, line {value.number}"
            if value.problem is not None:
                raise in_file(value.problem, where)
            yield Fields(value.data, where)


def in_file(wrong: InvalidInput, where: str) -> InvalidInput:
    """Returns an error with the place in the file at its beginning."""
    return InvalidInput(f"{where}, {wrong.argument}" if wrong.argument else where, wrong.value, wrong.allowed)


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines that are not blank, each with its number; a file named `….gz` is decompressed."""
    try:
        with opened(path) as (file, _):
            for number, line in enumerate(iterdecode(file, "utf-8-sig"), 1):
                if line.strip():
                    yield number, line
    except UnicodeDecodeError as error:
        raise StoreError(f"{path} could not be read ({describe(error)}); it must be UTF-8") from error
