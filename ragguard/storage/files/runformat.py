"""The run format: the content of a run file's line, as data from JSON and as records.

Every field is checked here, and a wrong one is named with its path in the line. Knows no file: `runfile.py` reads
and writes files, and `docs/reference/run-format.md` tells users of the format.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, asdict
from typing import Any, TypeAlias, TypeVar, get_args

from ragguard.errors import InvalidInput
from ragguard.records import (
    Advice,
    AdviceAction,
    AdviceStatus,
    Decision,
    Dropped,
    GuardStatus,
    Passage,
    RetrievalStep,
    Run,
    Status,
    SubStep,
    TraceContext,
    Usage,
)
from ragguard.schema import checked_k
from ragguard.storage.sqlite.columns import Data, storable
from ragguard.text.plain import plain_metadata

FORMAT = "ragguard.run/1"
LONGEST_TEXT = 1_000_000
"""The most characters of one text; no model reads more."""

T = TypeVar("T")
Check: TypeAlias = Callable[[Any, str], Any]
"""A check of one field: a value and its path in the line → the value as the records have it; raises `Wrong`."""
_LARGEST = 2**63 - 1


class Wrong(Exception):
    """Raised where a field of a line has a value that is not allowed."""

    def __init__(self, where: str, value: object, allowed: str) -> None:
        self.where, self.value, self.allowed = where, value, allowed


def run_of_data(data: Any) -> Run:
    """Returns the run of a line's data."""
    if isinstance(data, dict) and "format" in data and data["format"] != FORMAT:
        raise Wrong("format", data["format"], f"{FORMAT!r}, or none; a newer ragguard may know it")
    fields = _fields(data, "", _RUN, ("question", "steps"))
    fields.pop("format", None)
    if not fields["question"].strip():
        raise Wrong("question", fields["question"], "a question that is not empty")
    if "id" not in fields:
        canonical = json.dumps(data, sort_keys=True, ensure_ascii=True).encode("ascii")
        fields["id"] = hashlib.sha256(canonical).hexdigest()[:32]
    fields.setdefault("started_ns", 0)
    if fields.get("status") == "open":
        fields["status"] = "abandoned"
    run = Run(**fields)
    for index, step in enumerate(run.steps):
        step.run_id = run.id
        step.id = step.id or f"{run.id}-{index}"
        step.query = step.query or run.question
        step.index = index
    ids = [step.id for step in run.steps]
    if len(set(ids)) < len(ids):
        raise Wrong("steps", ids, "steps with different ids")
    return run


def _step(value: Any, where: str) -> RetrievalStep:
    fields = _fields(value, where, _STEP, ("passages",))
    fields.setdefault("id", "")
    if "candidates" not in fields:
        fields["candidates"] = list(fields["passages"])
    # A step without a turn follows the step before it.
    fields.setdefault("turn", int(where[where.rindex("[") + 1 : -1]))
    if "k" in fields:
        try:
            checked_k("k", fields["k"], len(fields["passages"]))
        except InvalidInput as error:
            raise Wrong(_at(where, "k"), fields["k"], error.allowed) from error
    return RetrievalStep(**fields)


def _passage(value: Any, where: str) -> Passage:
    if isinstance(value, str):
        return Passage(_text(value, where))
    return Passage(**_fields(value, where, _PASSAGE, ("text",)))


def _fields(value: Any, where: str, checks: Mapping[str, Check], needed: Collection[str] = ()) -> Data:
    if not isinstance(value, dict):
        raise Wrong(where or "line", value, "an object")
    for name in value:
        if name not in checks:
            close = difflib.get_close_matches(name, checks, 1)
            meant = f"did you mean {close[0]!r}? " if close else ""
            raise Wrong(
                _at(where, name), value[name],
                f"{meant}no field of that name; your own data go into `metadata`",
            )  # fmt: skip
    found = {
        name: check(value[name], _at(where, name))
        for name, check in checks.items()
        if value.get(name) is not None
    }
    for name in needed:
        if name not in found:
            raise Wrong(_at(where, name), None, "needed; it is missing")
    return found


def _at(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise Wrong(where, value, "a text")
    if len(value) > LONGEST_TEXT:
        raise Wrong(where, f"{len(value)} characters", f"at most {LONGEST_TEXT}: cut it into passages")
    return storable(value)


def _anything(value: Any, where: str) -> Any:
    return value


def _id(value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        raise Wrong(where, value, "a text that is not empty, or a whole number")
    return storable(str(value))


def _whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise Wrong(where, value, "a whole number, 0 or more")
    return value


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > sys.float_info.max:
        raise Wrong(where, value, "a number")
    if not math.isfinite(value):
        raise Wrong(where, value, "a finite number")
    return value


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise Wrong(where, value, "true or false")
    return value


def _grade(value: Any, where: str) -> int:
    if isinstance(value, bool) or value not in (1, 2, 3, 4, 5):
        raise Wrong(where, value, "a whole number from 1 to 5")
    return int(value)


def _object(value: Any, where: str) -> Data:
    if not isinstance(value, dict):
        raise Wrong(where, value, "an object")
    return value


def _one_of(allowed: object) -> Check:
    names = get_args(allowed)

    def check(value: Any, where: str) -> str:
        if value not in names:
            raise Wrong(where, value, ", ".join(names))
        return str(value)

    return check


def _list_of(check: Check) -> Check:
    def check_all(value: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            raise Wrong(where, value, "a list")
        return [check(item, f"{where}[{index}]") for index, item in enumerate(value)]

    return check_all


def _texts(value: Any, where: str) -> list[str]:
    texts: list[str] = _list_of(_text)([value] if isinstance(value, str) else value, where)
    return texts


def _record(kind: Callable[..., T], checks: Mapping[str, Check], needed: Collection[str] = ()) -> Check:
    return lambda value, where: kind(**_fields(value, where, checks, needed))


_TRACE = _record(
    TraceContext,
    {"trace_id": _text, "span_id": _text, "sampled": _flag, "foreign": _flag},
    ("trace_id", "span_id"),
)
_PASSAGE: Mapping[str, Check] = {
    "text": _text, "id": _id, "score": _number, "metadata": _object, "grade": _grade,
}  # fmt: skip
_PASSAGES = _list_of(_passage)
_SPAN: Mapping[str, Check] = {"started_ns": _whole, "ended_ns": _whole, "status": _one_of(Status)}
_SUB_STEP = _record(SubStep, {"query": _text, "passages": _PASSAGES, "name": _text, **_SPAN}, ("query",))
_DROPPED = _record(
    Dropped,
    {
        "passage": _passage, "position": _whole, "reason": _text, "utility": _number, "p_abstain": _number,
        "p_relevant": _number,
    },
    ("passage", "position", "reason"),
)  # fmt: skip
_DECISION = _record(
    Decision,
    {
        "kept": _PASSAGES, "dropped": _list_of(_DROPPED), "status": _one_of(GuardStatus),
        "elapsed_ms": _number, "reason": _text, "engine": _text, "started_ns": _whole,
    },
    ("kept",),
)  # fmt: skip
_USAGE = _record(
    Usage,
    {
        "requests": _whole, "prompts": _whole, "prompt_tokens": _whole, "output_tokens": _whole,
        "seconds": _number, "cached": _whole,
    },
)  # fmt: skip
_ADVICE = _record(
    Advice,
    {
        "action": _one_of(AdviceAction), "open_sub_questions": _list_of(_text), "expected_gain": _number,
        "stderr": _number, "reasons": _list_of(_text), "calibrated": _flag, "elapsed_ms": _number,
        "status": _one_of(AdviceStatus), "numbers": _object, "usage": _USAGE, "step_id": _text, "engine": _text,
        "started_ns": _whole,
    },
    ("action",),
)  # fmt: skip
_STEP: Mapping[str, Check] = {
    "id": _id, "query": _text, "passages": _PASSAGES, "candidates": _PASSAGES, "turn": _whole, "k": _anything,
    "tool": _text, "sub_steps": _list_of(_SUB_STEP), "error": _text, "decision": _DECISION, "advice": _ADVICE,
    "trace": _TRACE, "metadata": _object, **_SPAN,
}  # fmt: skip
_RUN: Mapping[str, Check] = {
    "format": _anything, "id": _id, "question": _text, "references": _texts,
    "answer": _text, "steps": _list_of(_step), "metadata": _object, "sub_questions": _texts,
    "pool": _PASSAGES, "name": _text, "trace": _TRACE, **_SPAN,
}  # fmt: skip


_OF_RECORDS = frozenset(("pool", "trace", "sub_steps", "decision", "advice", "usage"))
"""The fields with default values that hold records."""


def data_of_run(run: Run) -> Data:
    """Returns the data of a run's line, without the fields that have their default values."""
    return (
        {"format": FORMAT, "id": run.id, "question": run.question}
        | _given(run, "references", "answer", "sub_questions", "name", "metadata", "pool", *_SPAN, "trace")
        | {"steps": _data(run.steps)}
    )


def _data(value: Any) -> Any:
    """Returns a record, or a list of records, as data; without the fields that have their default values."""
    match value:
        case Passage():
            return {"text": value.text} | _given(value, "id", "score", "metadata", "grade")
        case list() | tuple():
            return [_data(one) for one in value]
        case RetrievalStep():
            candidates = value.candidates if value.candidates != value.passages else ()
            return (
                {"id": value.id, "query": value.query, "turn": value.turn}
                | _given(value, "tool", "error", "metadata", "k", *_SPAN, "trace")
                | {"passages": _data(value.passages)}
                | ({"candidates": _data(candidates)} if candidates else {})
                | _given(value, "sub_steps", "decision", "advice")
            )
        case SubStep():
            return {"query": value.query, "passages": _data(value.passages)} | _given(value, "name", *_SPAN)
        case Decision():
            return {"kept": _data(value.kept), "dropped": _data(value.dropped)} | _given(
                value, "status", "elapsed_ms", "reason", "engine", "started_ns"
            )
        case Dropped():
            return {
                "passage": _data(value.passage), "position": value.position, "reason": value.reason,
            } | _given(value, "utility", "p_abstain", "p_relevant")  # fmt: skip
        case Advice():
            return {"action": value.action} | _given(
                value, "open_sub_questions", "expected_gain", "stderr", "reasons", "calibrated", "elapsed_ms",
                "status", "numbers", "step_id", "engine", "started_ns", "usage",
            )  # fmt: skip
    return asdict(value)  # a trace context, or a usage


def _given(
    record: Run | RetrievalStep | SubStep | Decision | Dropped | Advice | Passage, *names: str
) -> Data:
    """Returns the fields whose values are not their defaults."""
    given: Data = {}
    for name in names:
        value, declared = getattr(record, name), record.__dataclass_fields__[name]
        factory = declared.default_factory
        default = declared.default if factory is MISSING else factory()
        if name == "metadata":
            value = plain_metadata(value)
        if value != default:
            given[name] = _data(value) if name in _OF_RECORDS else value
    return given
