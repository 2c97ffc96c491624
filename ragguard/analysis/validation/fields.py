"""Reads values from JSON and checks each; an error names the file, the line and what is allowed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ragguard.errors import InvalidInput, StoreError
from ragguard.records import Passage
from ragguard.runtime.faults import describe
from ragguard.storage.files.runfile import opened, raw_lines

LARGEST = 512 * 2**20
"""The most bytes of a line, counted after decompression."""


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

    def numbers(self, name: str) -> tuple[float, ...]:
        """Returns a list of numbers of at least 0, such as grades."""
        value = self.data.get(name)
        if not isinstance(value, list) or not all(map(_is_grade, value)):
            raise self.wrong(name, value, "a list of numbers of at least 0")
        return tuple(map(float, value))

    def objects(self, name: str) -> list[Fields]:
        """Returns a list of objects; a text stands for an object that has it under `text`."""
        value = self.data.get(name)
        if not isinstance(value, list):
            raise self.wrong(name, value, "a list")
        return [
            Fields({"text": one} if isinstance(one, str) else one, f"{self.where}, {name}[{place}]")
            for place, one in enumerate(value)
        ]

    def wrong(self, name: str, value: object, allowed: str) -> InvalidInput:
        """Returns the error for a field."""
        return InvalidInput(f"{self.where}, {name}", value, allowed)


def json_lines(path: Path) -> Iterator[Fields]:
    """Yields the objects of a file of JSON lines."""
    for number, line in lines_of(path):
        yield Fields(_parsed(line, f"{path}, line {number}"), f"{path}, line {number}")


def json_objects(path: Path) -> Iterator[Fields]:
    """Yields the objects of a file: one JSON list of them, or JSON lines."""
    lines = lines_of(path)
    first_line = next(lines, None)
    if first_line is not None and first_line[1].lstrip().startswith("["):
        data = _parsed("".join([first_line[1], *(line for _, line in lines)]), str(path))
        yield from (Fields(one, f"{path}, entry {place}") for place, one in enumerate(data, 1))
    else:
        yield from json_lines(path)


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines that are not blank, each with its number; a file named `….gz` is decompressed."""
    with opened(path) as (file, _):
        for number, (raw, size) in enumerate(raw_lines(file, LARGEST), 1):
            if size > LARGEST:
                raise InvalidInput(str(path), f"over {LARGEST:,} bytes", "less in one line; write JSON lines")
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise StoreError(
                    f"{path} could not be read (line {number}: {describe(error)}); it must be UTF-8"
                ) from error
            if line.strip():
                yield number, line


def first(path: Path) -> Mapping[str, Any]:
    """Returns the first object of a file, which shows its format; empty where there is none."""
    try:
        return next((fields.data for fields in json_objects(path)), {})
    except InvalidInput:
        return {}


def passages_of(items: list[Fields]) -> tuple[Passage, ...]:
    """Returns passages with their texts and ids."""
    return tuple(
        Passage(item.text("text", "contents", default=""), item.text("id", "doc_id", "docid", default=""))
        for item in items
    )


def _is_grade(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < math.inf


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(where, text[:40].strip(), f"JSON; {describe(error)}") from error
