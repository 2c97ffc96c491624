"""Reads the lists in data of single papers: of numbers, of objects, of passages; and files that are one JSON list."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ragguard.errors import InvalidInput
from ragguard.records import Passage
from ragguard.runtime.faults import describe
from ragguard.storage.files.jsonl import Fields, json_lines, lines_of


def numbers(fields: Fields, name: str) -> tuple[float, ...]:
    """Returns a list of numbers of at least 0, such as grades."""
    value = fields.data.get(name)
    if not isinstance(value, list) or not all(map(_is_grade, value)):
        raise fields.wrong(name, value, "a list of numbers of at least 0")
    return tuple(map(float, value))


def objects(fields: Fields, name: str) -> list[Fields]:
    """Returns a list of objects; a text stands for an object that has it under `text`."""
    value = fields.data.get(name)
    if not isinstance(value, list):
        raise fields.wrong(name, value, "a list")
    return [
        Fields({"text": one} if isinstance(one, str) else one, f"{fields.where}, {name}[{place}]")
        for place, one in enumerate(value)
    ]


def passages_of(items: list[Fields]) -> tuple[Passage, ...]:
    """Returns passages with their texts and ids."""
    return tuple(
        Passage(item.text("text", "contents", default=""), item.text("id", "doc_id", "docid", default=""))
        for item in items
    )


def json_objects(path: Path) -> Iterator[Fields]:
    """Yields the objects of a file: one JSON list of them, or JSON lines."""
    lines = [line for _, line in lines_of(path)]
    if not lines or not lines[0].lstrip().startswith("["):
        yield from json_lines(path)
        return
    try:
        data = json.loads("".join(lines))
    except ValueError as error:
        raise InvalidInput(str(path), lines[0][:40], f"JSON; {describe(error)}") from error
    yield from (Fields(one, f"{path}, entry {place}") for place, one in enumerate(data, 1))


def first(path: Path) -> Mapping[str, Any]:
    """Returns the first object of a file, which shows its format; empty where there is none."""
    try:
        return next((fields.data for fields in json_objects(path)), {})
    except InvalidInput:
        return {}


def _is_grade(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < math.inf
