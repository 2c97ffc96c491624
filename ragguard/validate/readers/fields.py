"""Values out of JSON, checked one by one: what is wrong is said with its file, its line and what is allowed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ragguard.errors import InvalidInput, StoreError
from ragguard.records import Passage
from ragguard.runtime.faults import describe
from ragguard.store.runfile import opened, raw_lines

LARGEST = 512 * 2**20
"""Bytes of a line, and of a JSON file that is one value and has to be read as a whole; those of the unpacked text."""


class Fields:
    """One object of a data set, and where it stands."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, Mapping):
            raise InvalidInput(where, data, "a JSON object")
        self.data, self.where = data, where

    def text(self, *names: str, default: str | None = None) -> str:
        """A text or a whole number under one of these names."""
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
        """A number, also true and false; None where there is none."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self.wrong(name, value, "a number")
        return float(value)

    def texts(self, *names: str) -> tuple[str, ...]:
        """A list of texts, or one text."""
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
        """A list of numbers of at least 0, such as grades."""
        value = self.data.get(name)
        if not isinstance(value, list) or not all(map(_is_grade, value)):
            raise self.wrong(name, value, "a list of numbers of at least 0")
        return tuple(map(float, value))

    def objects(self, name: str) -> list[Fields]:
        """A list of objects; a text stands for an object that has it under `text`."""
        value = self.data.get(name)
        if not isinstance(value, list):
            raise self.wrong(name, value, "a list")
        return [
            Fields({"text": one} if isinstance(one, str) else one, f"{self.where}, {name}[{place}]")
            for place, one in enumerate(value)
        ]

    def wrong(self, name: str, value: object, allowed: str) -> InvalidInput:
        """What is to be raised for a field."""
        return InvalidInput(f"{self.where}, {name}", value, allowed)


def json_lines(path: Path) -> Iterator[Fields]:
    """The objects of a file of JSON lines."""
    for number, line in lines_of(path):
        yield Fields(_parsed(line, f"{path}, line {number}"), f"{path}, line {number}")


def json_objects(path: Path) -> Iterator[Fields]:
    """The objects of a file: one JSON list of them, or JSON lines."""
    if not begins_with(path, "["):
        yield from json_lines(path)
        return
    lines: list[str] = []
    left = LARGEST  # of what is unpacked, where the file is packed
    for _, line in lines_of(path):
        left -= len(line)
        if left < 0:
            raise _too_large(path)
        lines.append(line)
    data = _parsed("".join(lines), str(path))
    for place, one in enumerate(data, 1):
        yield Fields(one, f"{path}, entry {place}")


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, each with its number; a name that ends in `.gz` is unpacked."""
    with opened(path) as (file, _):
        for number, (raw, size) in enumerate(raw_lines(file, LARGEST), 1):
            if size > LARGEST:
                raise _too_large(path)
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise StoreError(
                    f"{path} could not be read (line {number}: {describe(error)}); it must be UTF-8"
                ) from error
            if line.strip():
                yield number, line


def _too_large(path: Path) -> InvalidInput:
    return InvalidInput(
        str(path), f"over {LARGEST:,} bytes", "less in one line or one JSON list; write JSON lines"
    )


def begins_with(path: Path, text: str) -> bool:
    """Whether the first line that is not blank begins so."""
    return next((line.lstrip().startswith(text) for _, line in lines_of(path)), False)


def first(path: Path) -> Mapping[str, Any]:
    """The first object of a file, to see what it is; empty where it holds none."""
    try:
        return next((fields.data for fields in json_objects(path)), {})
    except InvalidInput:
        return {}


def passages_of(items: list[Fields]) -> tuple[Passage, ...]:
    """Passages with their texts and ids."""
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
