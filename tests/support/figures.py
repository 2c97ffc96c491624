"""Figures that pages quote from the records of benchmarks.

A page names file and field of what it quotes in a comment behind the text or the table, one line for each group:

    <!-- figures: guard.json
    97.2% 2.4% 0.3% = /helps/answers/guard, calibrated at 0.05/{correct|abstained|wrong}
    1.6% = max /figures/*/*/*/0.02/gold_lost
    0.3 = /cases/loop/hook µs/p99 × 0.001
    -->

On the right stands a JSON pointer; `{a|b}` stands for one pointer each, in the order of the figures. `min`, `max`,
`sum` and `count` are over all that a pointer with `*` stands for. `× NUMBER`, `− POINTER`, `÷ POINTER` and `1 −`
compute.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "benchmarks" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMENT = re.compile(r"<!-- figures: (\S+\.json)\n(.*?)-->", re.DOTALL)
OVER = {"min": min, "max": max, "sum": sum, "count": len}


class Quoted(NamedTuple):
    """A figure on a page, and where it is recorded."""

    page: Path
    text: str
    """The text of the page from its heading to the comment."""
    figure: str
    record: str
    expression: str


def quoted(page: Path, content: str | None = None) -> Iterator[Quoted]:
    """Yields the figures of a page whose file and field it names."""
    content = page.read_text(encoding="utf-8") if content is None else content
    for comment in COMMENT.finditer(content):
        text = COMMENT.sub("", content[content.rfind("\n#", 0, comment.start()) + 1 : comment.start()])
        for line in filter(None, comment[2].splitlines()):
            left, _, right = line.partition(" = ")
            figures, expressions = left.split(), list(expanded(right))
            assert len(figures) == len(expressions), f"{page}: {line}"
            for figure, expression in zip(figures, expressions, strict=True):
                yield Quoted(page, text, figure, comment[1], expression)


def expanded(expression: str) -> Iterator[str]:
    """Yields an expression for each combination of what stands in its braces."""
    parts = re.split(r"\{([^{}]*\|[^{}]*)\}", expression)
    choices = [part.split("|") if place % 2 else [part] for place, part in enumerate(parts)]
    for chosen in product(*choices):
        yield "".join(chosen)


def quoted_pointers(record: str) -> set[str]:
    """Returns every pointer into a record that a page names."""
    return {
        pointer
        for page in PAGES
        for one in quoted(page)
        if one.record == f"{record}.json"
        for pointer in re.findall(r"(?:^| )(/.+?)(?= [×−÷] |$)", one.expression)
    }


def values_at(value: Any, pointer: str) -> list[Any]:
    """Returns every value that a pointer stands for; KeyError for none."""
    values = [value]
    for key in pointer.split("/")[1:]:
        key = key.replace("~1", "/")
        values = [found for one in values for found in _below(one, key)]
    if not values:
        raise KeyError(pointer)
    return values


def _below(value: Any, key: str) -> list[Any]:
    if key == "*":
        return (
            list(value.values() if isinstance(value, dict) else value)
            if isinstance(value, dict | list)
            else []
        )
    if isinstance(value, list):
        return [value[int(key)]] if key.lstrip("-").isdigit() and int(key) < len(value) else []
    return [value[key]] if isinstance(value, dict) and key in value else []


def value_at(record: Any, pointer: str) -> Any:
    """Returns the first value that a pointer stands for; KeyError for none."""
    return values_at(record, pointer)[0]


def computed(record: Any, expression: str) -> float:
    """Returns the number that an expression stands for in a record."""
    if expression.startswith("1 − "):
        return 1 - computed(record, expression[4:])
    for operator in ("×", "−", "÷"):
        left, found, right = expression.partition(f" {operator} ")
        if found:
            first = computed(record, left)
            second = computed(record, right) if right.startswith("/") else float(right)
            return {"×": first * second, "−": first - second, "÷": first / second if second else 0.0}[
                operator
            ]
    word, _, pointer = expression.partition(" ")
    if word in OVER:
        return float(OVER[word](values_at(record, pointer)))
    return float(value_at(record, expression))


def is_same(figure: str, value: float) -> bool:
    """Returns whether a figure is this number, rounded as the figure is."""
    digits = figure.removesuffix("%").replace(",", "").replace("−", "-")
    places = len(digits.partition(".")[2])
    value *= 100 if figure.endswith("%") else 1
    return abs(value - float(digits)) <= 0.5 * 10**-places + 1e-9


def stands_in(text: str, figure: str) -> bool:
    """Returns whether a text has the figure, as a number of its own, without its sign and unit."""
    digits = re.escape(figure.strip("−%"))
    return re.search(rf"(?<![\d.,]){digits}(?!\.?\d)", text) is not None


def shape(value: Any, path: str = "") -> set[str]:
    """Returns the paths of all fields, with `*` for the items of a list."""
    if isinstance(value, dict):
        return {one for key, below in value.items() for one in shape(below, f"{path}/{key}")}
    if isinstance(value, list) and value and isinstance(value[0], dict | list):
        return shape(value[0], f"{path}/*")
    return {path}


def read(record: str) -> Any:
    """Returns a record of a benchmark, or another one by its path in the project."""
    return json.loads((ROOT / record if "/" in record else RECORDS / record).read_text(encoding="utf-8"))
