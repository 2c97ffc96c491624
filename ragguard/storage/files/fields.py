"""Reads values from JSON lines and checks each; an error names the file, the line and what is allowed."""

from __future__ import annotations

import json
import math
from codecs import iterdecode
from collections.abc import Iterator, Mapping
from pathlib import Path

from ragguard.errors import InvalidInput, StoreError
from ragguard.runtime.faults import describe
from ragguard.storage.files.runfile import opened


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


def json_lines(path: Path) -> Iterator[Fields]:
    """Yields the objects of a file of JSON lines."""
    for number, line in lines_of(path):
        where = f"{path}, line {number}"
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(where, line[:40].strip(), f"JSON; {describe(error)}") from error
        yield Fields(data, where)


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines that are not blank, each with its number; a file named `….gz` is decompressed."""
    try:
        with opened(path) as (file, _):
            for number, line in enumerate(iterdecode(file, "utf-8-sig"), 1):
                if line.strip():
                    yield number, line
    except UnicodeDecodeError as error:
        raise StoreError(f"{path} could not be read ({describe(error)}); it must be UTF-8") from error
