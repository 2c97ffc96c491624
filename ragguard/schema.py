"""The one description of the records' fields: their types, limits, defaults, and the words of errors.

All of it is derived from the annotations in `records.py`. Records made by hand are checked with it, files, requests and
rows of a store are read and written with it, and captured values are brought to its types. Knows no file and no
database.

A record is written in one of two forms. Files name each field. A row of a store does as well, but keeps each distinct
passage once, refers to it by its position, and writes records that stand in lists as lists of their values, in the
order of their fields. New fields of a record come last, so that older rows can be read.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from types import NoneType
from typing import Annotated, Any, Literal, Protocol, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from ragguard.errors import InvalidInput
from ragguard.records import Failure, FieldRule, Passage, Result, RetrievalStep, Run, Score
from ragguard.runtime import scalars
from ragguard.runtime.scalars import Scalar, WrongField
from ragguard.text.plain import plain_metadata

T = TypeVar("T")
FieldType: TypeAlias = "Scalar | ListType | RecordType"
"""The type of a field: each can check a value, read it from JSON, write it, and fit a captured value to itself."""
Data: TypeAlias = dict[str, Any]

_OWN_DATA = "your own data go into `metadata`"
UNREADABLE = "ragguard.fields"
"""Metadata key that names the fields whose values could not be kept."""


def checked_run(run: Run) -> Run:
    """Returns the run itself; raises InvalidInput for the first field that cannot be right."""
    if not isinstance(run, Run):
        raise InvalidInput("run", run, "a Run, or what `rg.run(...)` gives")
    _check(run, "run")
    return run


def checked_result(result: Result) -> Result:
    """Returns a score or a failure that a user's scorer gave; raises InvalidInput for the first wrong field."""
    if not isinstance(result, Score | Failure):
        raise InvalidInput("result", result, "a Score or a Failure")
    _check(result, "score" if isinstance(result, Score) else "failure")
    return result


def checked_k(value: Any, delivered: int) -> int:
    """Returns K, the number of places of a step that delivered so many passages; refuses fewer places than passages."""
    if not scalars.whole(range(max(1, delivered), 2**63)).fits(value):
        raise InvalidInput("k", value, _k_allowed(delivered))
    return int(value)


def read_record(kind: type[T], data: object) -> T:
    """Returns the record that data from JSON describe; None is as good as a field that is missing.

    Raises InvalidInput for the first wrong field, with its path as the argument, such as `steps[2].passages[0].text`;
    the path is empty where the data are no object.
    """
    try:
        record: T = record_type(kind).read(data)
        return record
    except WrongField as wrong:
        raise InvalidInput(wrong.path, wrong.value, wrong.allowed) from None


def data_of(record: Any) -> Data:
    """Returns a record as data for JSON, without the fields that have their default values."""
    data: Data = record_type(type(record)).write(record)
    return data


class PassagePositions(Protocol):
    """Keeps the distinct passages of a row."""

    def positions_of(self, passages: Iterable[Passage]) -> list[int]:
        """Returns the position of each passage among those of the row."""


def other_fields(kind: type, *known: str) -> tuple[str, ...]:
    """Returns the fields of a record class that do not have a column of their own in a store."""
    return tuple(declared.name for declared in fields(kind) if declared.name not in known)


def fitted(record: T) -> T:
    """Returns a captured record itself where every field has its type, else a copy in which every field has.

    What can be converted without a loss is converted; a field that cannot is emptied, and the record's metadata name
    it. Passages and metadata are left as they are.
    """
    made: T = record_type(type(record)).fit(record)
    return made


def _check(record: Any, argument: str) -> None:
    try:
        record_type(type(record)).check(record)
    except WrongField as wrong:
        wrong.under(argument)
        raise InvalidInput(wrong.path, wrong.value, wrong.allowed) from None


class ListType:
    """Several values of one type."""

    def __init__(self, item: FieldType) -> None:
        self.item = item

    def check(self, value: Any) -> None:
        if not isinstance(value, list | tuple):
            raise WrongField(value, "a list")
        self._each(self.item.check, value)

    def read(self, data: Any) -> list[Any]:
        if isinstance(data, str) and self.item is scalars.TEXT:
            data = [data]
        if not isinstance(data, list):
            raise WrongField(data, "a list")
        return self._each(self.item.read, data)

    def write(self, value: Any, passages: PassagePositions | None = None) -> list[Any]:
        item = self.item
        if passages is None or not isinstance(item, RecordType):
            return [item.write(one) for one in value]
        return (
            passages.positions_of(value)
            if item.kind is Passage
            else [item.values(one, passages) for one in value]
        )

    def restore(self, data: list[Any], passages: Sequence[Passage]) -> list[Any]:
        item = self.item
        return [item.restore(one, passages) for one in data] if isinstance(item, RecordType) else data

    def fit(self, value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise TypeError
        items = [self.item.fit(item) for item in value]
        return value if isinstance(value, list) and all(map(operator.is_, items, value)) else items

    def _each(self, call: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        done: list[Any] = []
        try:
            done.extend(map(call, items))
        except WrongField as wrong:
            wrong.under(f"[{len(done)}]")
            raise
        return done


class RecordType:
    """A record class with the types of its fields; as a field, a record of this class."""

    def __init__(self, kind: type[Any]) -> None:
        self.kind = kind
        self._fields: dict[str, FieldType] = {}
        self._optional: set[str] = set()
        self._in_data: dict[str, object] = {}
        """The fields in files, each with its default value; MISSING where files always have the field."""
        self.texts: dict[str, FieldType] = {}
        """The fields that may hold texts of a user's."""
        hints = get_type_hints(kind, include_extras=True)
        for declared in fields(kind):
            name = declared.name
            self._fields[name], optional, rules = _described(hints[name])
            if optional:
                self._optional.add(name)
            if FieldRule.OWN_WORDS not in rules and _may_hold_text(self._fields[name]):
                self.texts[name] = self._fields[name]
            if FieldRule.NEEDED in rules:
                self._in_data[name] = MISSING
            elif FieldRule.DERIVED not in rules:
                factory = declared.default_factory
                self._in_data[name] = declared.default if factory is MISSING else factory()
        self._readers = {name: self._fields[name].read for name in self._in_data}
        self._values = operator.attrgetter(*self._fields)
        self._mappings = [
            place for place, described in enumerate(self._fields.values()) if described is scalars.MAPPING
        ]
        """The places of the fields that hold mappings of a user's."""
        self._holding = {
            name: described for name, described in self._fields.items() if not isinstance(described, Scalar)
        }
        """The fields that hold records or lists."""
        self._places = {name: place for place, name in enumerate(self._fields)}
        # Lists and records come last.
        self._written = sorted(self._in_data, key=lambda name: not isinstance(self._fields[name], Scalar))
        self._needed = [name for name, default in self._in_data.items() if default is MISSING]
        self._fitted = [
            (name, *((found.stored, found.within) if isinstance(found, Scalar) else ((), None)))
            for name, found in self._fields.items()
            if found is not scalars.MAPPING
            and getattr(found.item if isinstance(found, ListType) else found, "kind", None) is not Passage
        ]
        """The fields that a captured record has to fit, with the types and the values that need no conversion."""

    @property
    def names(self) -> Iterable[str]:
        """The names of the fields that a file may have."""
        return self._in_data

    def check(self, record: Any) -> None:
        """Raises WrongField for the first field that cannot be right."""
        if not isinstance(record, self.kind):
            raise WrongField(record, f"a record of the class {self.kind.__name__}")
        name = ""
        try:
            for name, described in self._fields.items():
                value = getattr(record, name)
                if value is not None or name not in self._optional:
                    described.check(value)
        except WrongField as wrong:
            if name in self._optional and not wrong.path:
                wrong.allowed += ", or None"
            wrong.under(name)
            raise
        _check_whole(record)

    def read(self, data: Any) -> Any:
        """Returns the record that data from JSON describe; a text describes a passage."""
        if isinstance(data, str) and self.kind is Passage:
            return Passage(scalars.TEXT.read(data))
        if not isinstance(data, dict):
            raise WrongField(data, "a text or an object" if self.kind is Passage else "an object")
        values = {}
        name = ""
        try:
            for name, value in data.items():
                if (read := self._readers.get(name)) is None:
                    raise WrongField(value, self._meant(name))
                if value is not None:
                    values[name] = read(value)
        except WrongField as wrong:
            wrong.under(name)
            raise
        for name in self._needed:
            if name not in values:
                raise WrongField(None, "needed; it is missing", name)
        record = self.kind(**values)
        _check_whole(record)
        return record

    def write(
        self, record: Any, names: Iterable[str] | None = None, passages: PassagePositions | None = None
    ) -> Any:
        """Returns the fields of the record, or the named ones, as data for JSON, without default values; an event that
        has fields of a record is written as well. With the `passages` of a row it is the form of rows, in which a
        passage is its position."""
        if passages is not None and self.kind is Passage:
            return passages.positions_of([record])[0]
        data = {}
        for name in self._written if names is None else names:
            value = getattr(record, name)
            if value != self._in_data[name]:
                data[name] = None if value is None else _written(self._fields[name], value, passages)
        return data

    def values(self, record: Any, passages: PassagePositions | None = None) -> list[Any]:
        """Returns the values of all fields of the record, in their order, as data for JSON."""
        values = list(self._values(record))
        for place in self._mappings:
            values[place] = plain_metadata(values[place])
        for name, described in self._holding.items():
            if values[place := self._places[name]] is not None:
                values[place] = described.write(values[place], passages=passages)
        return values

    def restore(self, data: Any, passages: Sequence[Passage]) -> Any:
        """Returns the record that `write` or `values` wrote into a row; checks nothing."""
        if self.kind is Passage:
            return passages[data]
        named = dict(zip(self._fields, data, strict=False)) if isinstance(data, list) else data
        return self.kind(**self.restored(named, named, passages))

    def restored(self, data: Data, names: Iterable[str], passages: Sequence[Passage]) -> Data:
        """Returns the values of the named fields that stand in a row, whose `passages` are found by their position.

        Nothing is checked: what another program has changed raises a TypeError, a ValueError or a LookupError, or comes
        back as it is.
        """
        values = {name: data[name] for name in names if name in data}
        for name, described in self._holding.items():
            if values.get(name) is not None:
                values[name] = described.restore(values[name], passages)
        return values

    def fit(self, record: Any) -> Any:
        """Returns the record itself where every field has its type, else a copy in which every field has."""
        if not isinstance(record, self.kind):
            raise TypeError
        changes: dict[str, Any] = {}
        lost: list[str] = []
        for name, stored, within in self._fitted:
            value = getattr(record, name)
            if value is None and name in self._optional:
                continue
            if type(value) in stored and (within is None or value in within):
                continue
            described = self._fields[name]
            try:
                fitting = described.fit(value)
            except BaseException:  # noqa: BLE001 - a value of the user's may raise anything when it is read
                empty = described.empty if isinstance(described, Scalar) else []
                fitting = None if name in self._optional else empty
                if value is not None:
                    lost.append(f"{name}: {type(value).__name__}")
            if fitting is not value:
                changes[name] = fitting
        if not changes:
            return record
        if lost and "metadata" in self._fields:
            changes["metadata"] = {**record.metadata, UNREADABLE: "not kept: " + ", ".join(lost)}
        return replace(record, **changes)

    def _meant(self, name: str) -> str:
        close = difflib.get_close_matches(name, self._in_data, 1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        known = f"the fields are {', '.join(self._in_data)}"
        return f"{meant}no field of that name; {_OWN_DATA if 'metadata' in self._in_data else known}"


def _written(described: FieldType, value: Any, passages: PassagePositions | None) -> Any:
    if isinstance(described, Scalar):
        return described.write(value)
    return described.write(value, passages=passages)


def record_type(kind: type) -> RecordType:
    """Returns the types of the fields of a record class."""
    if (known := _record_types.get(kind)) is None:
        known = _record_types[kind] = RecordType(kind)
    return known


_record_types: dict[type, RecordType] = {}


def _described(annotation: Any, rules: Sequence[object] = ()) -> tuple[FieldType, bool, Sequence[object]]:
    """Returns the type of a field by its annotation, whether it may be None, and the rules in the annotation."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _described(inner[0], inner[1:])
    if NoneType in inner:
        (value_type,) = (one for one in inner if one is not NoneType)
        return _described(value_type, rules)[0], True, rules
    return _type_of(annotation, origin, inner, rules), False, rules


def _type_of(annotation: Any, origin: Any, inner: tuple[Any, ...], rules: Sequence[object]) -> FieldType:
    if origin is list:
        return ListType(_described(inner[0])[0])
    if origin is Literal:
        return scalars.choice(inner)
    if origin is Mapping:
        return scalars.MAPPING
    if annotation is int:
        return scalars.whole(next((rule for rule in rules if isinstance(rule, range)), scalars.WHOLE))
    if FieldRule.QUOTING in rules:
        return scalars.QUOTING
    if FieldRule.ID in rules or FieldRule.HEXADECIMAL in rules:
        return scalars.ID if FieldRule.ID in rules else scalars.HEXADECIMAL
    simple = {str: scalars.TEXT, float: scalars.NUMBER, bool: scalars.FLAG}.get(annotation)
    return simple or record_type(annotation)


def _may_hold_text(described: FieldType) -> bool:
    if isinstance(described, ListType):
        return _may_hold_text(described.item)
    if isinstance(described, RecordType):
        return bool(described.texts)
    return described in (scalars.TEXT, scalars.QUOTING, scalars.ID, scalars.MAPPING)


def _check_whole(record: object) -> None:
    """Raises WrongField for a step that has fewer places than passages, and a run with two steps of one id."""
    if isinstance(record, RetrievalStep) and record.k is not None and record.k < max(1, len(record.passages)):
        raise WrongField(record.k, _k_allowed(len(record.passages)), "k")
    if isinstance(record, Run):
        ids = [step.id for step in record.steps if step.id]
        if len(set(ids)) < len(ids):
            raise WrongField(ids, "steps with different ids", "steps")


def _k_allowed(delivered: int) -> str:
    return f"a whole number, {max(1, delivered)} or more: {delivered} passages were delivered"
