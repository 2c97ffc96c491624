"""Labels that people and a judge gave to the same texts, one line an item.

    {"context": "report-1", "item": "q3", "judge": 4, "labels": {"ann": 5, "bob": 3}, "system": "bm25"}

An item is one thing that was labelled: a sub-question about a response, or a passage for a sub-question. The items of
one context make one coverage. A label is a number, or true and false. `system` may be left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ragguard.analysis.validation.readers.fields import Fields, first, json_objects
from ragguard.errors import InvalidInput
from ragguard.storage.sqlite.files import is_store


@dataclass(frozen=True, slots=True)
class Labelled:
    """An item with the judge's label and those of people."""

    context: str
    item: str
    judge: float
    labels: Mapping[str, float]
    """The labels, by rater."""
    system: str = ""


def is_labels(path: Path) -> bool:
    """Tells whether a file holds labels of people and a judge."""
    return (
        path.is_file() and not is_store(path) and {"context", "item", "judge", "labels"} <= first(path).keys()
    )


def read_labels(path: Path) -> list[Labelled]:
    """Reads the items of a file; what is wrong with one is an error that names its line."""
    found: dict[tuple[str, str, str], Labelled] = {}
    kind: bool | None = None
    for fields in json_objects(path):
        one = _labelled(fields)
        said = (fields.data["judge"], *fields.data["labels"].values())
        kind = isinstance(said[0], bool) if kind is None else kind
        if any(isinstance(label, bool) != kind for label in said):
            raise fields.wrong(
                "labels", list(said), "all true or false, or all numbers, as in the first line"
            )
        key = one.system, one.context, one.item
        if key in found:
            raise fields.wrong(
                "item", one.item, f"an item that context {one.context!r} has once; it is there twice"
            )
        found[key] = one
    if not found:
        raise InvalidInput(str(path), "nothing", "at least one line with context, item, judge and labels")
    return list(found.values())


def _labelled(fields: Fields) -> Labelled:
    unknown = fields.data.keys() - {"context", "item", "judge", "labels", "system"}
    if unknown:
        raise fields.wrong(min(unknown), fields.data[min(unknown)], "no field of that name")
    judge, given = fields.number("judge"), fields.data.get("labels")
    if judge is None:
        raise fields.wrong("judge", None, "the judge's label; it is missing")
    if not isinstance(given, Mapping) or not given:
        raise fields.wrong("labels", given, "an object with a label for each rater, at least one")
    labels = Fields(given, f"{fields.where}, labels")
    by_rater: dict[str, float] = {}
    for rater in given:
        label = labels.number(rater)
        if label is None:
            raise labels.wrong(rater, None, "a number; leave the rater out where there is no label")
        by_rater[str(rater)] = label
    return Labelled(
        fields.text("context"), fields.text("item"), judge, by_rater, system=fields.text("system", default="")
    )
