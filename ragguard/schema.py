"""Checks records that were made by hand, field by field, before they are scored, stored or written to a file.

The records are plain data and take anything. A wrong field is named here with its path and what is allowed,
when the record is handed over, instead of failing later in a store, a sink or a report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, get_args

from ragguard.errors import InvalidInput
from ragguard.records import (
    Advice,
    AdviceAction,
    AdviceStatus,
    Decision,
    Dropped,
    Failure,
    GuardStatus,
    Level,
    Passage,
    ReferenceSource,
    Result,
    RetrievalStep,
    Run,
    Score,
    Stage,
    Status,
    SubStep,
    TraceContext,
    Usage,
)

Check: TypeAlias = Callable[[Any, str], None]
"""A function of a value and the name of its field; raises InvalidInput where the value is wrong."""
_LARGEST = 2**63 - 1


def checked_run(run: Run) -> Run:
    """Returns the run itself; raises InvalidInput for the first field that cannot be right."""
    if not isinstance(run, Run):
        raise InvalidInput("run", run, "a Run, or what `rg.run(...)` gives")
    _fields(run, "run", _RUN)
    return run


def checked_result(result: Result) -> Result:
    """Returns a score or a failure that a user's scorer gave; raises InvalidInput for the first wrong field."""
    if isinstance(result, Score):
        _fields(result, "score", _SCORE)
    elif isinstance(result, Failure):
        _fields(result, "failure", _FAILURE)
    else:
        raise InvalidInput("result", result, "a Score or a Failure")
    return result


def checked_k(argument: str, value: object, delivered: int) -> int:
    """Returns K, the number of places of a step that delivered so many passages; refuses fewer places than passages."""
    least = max(1, delivered)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _LARGEST:
        raise InvalidInput(
            argument, value, f"a whole number, {least} or more: {delivered} passages were delivered"
        )
    return value


def _fields(record: object, where: str, checks: Mapping[str, Check]) -> None:
    for name, check in checks.items():
        check(getattr(record, name), f"{where}.{name}")


def _text(value: Any, where: str) -> None:
    if not isinstance(value, str):
        raise InvalidInput(where, value, "a text; '' where there is none")


def _maybe_text(value: Any, where: str) -> None:
    if value is not None and not isinstance(value, str):
        raise InvalidInput(where, value, "a text, or None")


def _id(value: Any, where: str) -> None:
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise InvalidInput(where, value, "a text, or a whole number")


def _whole(value: Any, where: str) -> None:
    if not isinstance(value, int) or not -_LARGEST <= value <= _LARGEST:
        raise InvalidInput(where, value, "a whole number of at most 64 bits")


def _number(value: Any, where: str) -> None:
    if not isinstance(value, int | float) or (isinstance(value, int) and value.bit_length() > 1023):
        raise InvalidInput(where, value, "a number that a float can hold")


def _grade(value: Any, where: str) -> None:
    if value is not None and (not isinstance(value, int) or not 1 <= value <= 5):
        raise InvalidInput(where, value, "a whole number from 1 to 5, or None")


def _step(value: Any, where: str) -> None:
    _plain_step(value, where)
    if value.k is not None:
        checked_k(f"{where}.k", value.k, len(value.passages))


def _hexadecimal(value: Any, where: str) -> None:
    try:
        int(value, 16)
    except (TypeError, ValueError) as error:
        raise InvalidInput(where, value, "hexadecimal digits") from error


def _flag(value: Any, where: str) -> None:
    if not isinstance(value, bool):
        raise InvalidInput(where, value, "True or False")


def _mapping(value: Any, where: str) -> None:
    if not isinstance(value, Mapping):
        raise InvalidInput(where, value, "a mapping")


def _one_of(allowed: object) -> Check:
    names = get_args(allowed)

    def check(value: Any, where: str) -> None:
        if not isinstance(value, str) or value not in names:
            raise InvalidInput(where, value, ", ".join(names))

    return check


def _list_of(check: Check) -> Check:
    def check_all(value: Any, where: str) -> None:
        if not isinstance(value, list | tuple):
            raise InvalidInput(where, value, "a list")
        for at, item in enumerate(value):
            check(item, f"{where}[{at}]")

    return check_all


def _maybe(check: Check) -> Check:
    return lambda value, where: None if value is None else check(value, where)


_maybe_number = _maybe(_number)


def _record(kind: type, checks: Mapping[str, Check]) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, kind):
            raise InvalidInput(where, value, f"a {kind.__name__}")
        _fields(value, where, checks)

    return check


_passage = _record(
    Passage, {"text": _text, "id": _id, "score": _maybe_number, "metadata": _mapping, "grade": _grade}
)
_PASSAGES = _list_of(_passage)
_SPAN: Mapping[str, Check] = {"started_ns": _whole, "ended_ns": _whole, "status": _one_of(Status)}
_TRACE = _maybe(
    _record(
        TraceContext, {"trace_id": _hexadecimal, "span_id": _hexadecimal, "sampled": _flag, "foreign": _flag}
    )
)
_SUB_STEP = _record(SubStep, {"query": _text, "passages": _PASSAGES, "name": _text, **_SPAN})
_DROPPED = _record(
    Dropped,
    {
        "passage": _passage, "position": _whole, "reason": _text, "utility": _maybe_number,
        "p_abstain": _maybe_number, "p_relevant": _maybe_number,
    },
)  # fmt: skip
_DECISION = _record(
    Decision,
    {
        "kept": _PASSAGES, "dropped": _list_of(_DROPPED), "status": _one_of(GuardStatus), "elapsed_ms": _number,
        "reason": _text, "engine": _text, "started_ns": _whole,
    },
)  # fmt: skip
_ADVICE = _record(
    Advice,
    {
        "action": _one_of(AdviceAction), "open_sub_questions": _list_of(_text), "expected_gain": _maybe_number,
        "stderr": _maybe_number, "reasons": _list_of(_text), "calibrated": _flag, "elapsed_ms": _number,
        "status": _one_of(AdviceStatus), "numbers": _mapping, "usage": _record(Usage, {}), "step_id": _text,
        "engine": _text, "started_ns": _whole,
    },
)  # fmt: skip
_plain_step = _record(
    RetrievalStep,
    {
        "id": _id, "run_id": _id, "index": _whole, "turn": _whole, "query": _text, "passages": _PASSAGES,
        "candidates": _PASSAGES, "tool": _text, "sub_steps": _list_of(_SUB_STEP), "error": _text,
        "decision": _maybe(_DECISION), "advice": _maybe(_ADVICE), "trace": _TRACE, "metadata": _mapping, **_SPAN,
    },
)  # fmt: skip
_SCORE: Mapping[str, Check] = {
    "name": _text, "value": _number, "level": _one_of(Level), "run_id": _id, "step_id": _id, "passage_id": _id,
    "position": _maybe(_whole), "stderr": _maybe_number, "label": _text, "explanation": _text,
    "reference_source": _one_of(ReferenceSource), "engine": _text, "prompts": _text, "usage": _record(Usage, {}),
    "scorer": _text, "version": _text, "references_hash": _text, "sub_question": _maybe(_whole),
    "expectation": _maybe_number, "metadata": _mapping, "stage": _one_of(Stage),
}  # fmt: skip
_FAILURE: Mapping[str, Check] = {
    "scorer": _text, "error": _text, "message": _text, "will_retry": _flag, "run_id": _id, "step_id": _id,
    "attempts": _whole, "occurred_ns": _whole,
}  # fmt: skip
_RUN: Mapping[str, Check] = {
    "id": _id, "question": _text, "references": _maybe(_list_of(_text)), "answer": _maybe_text,
    "steps": _list_of(_step), "metadata": _mapping, "sub_questions": _maybe(_list_of(_text)),
    "pool": _maybe(_PASSAGES), "name": _text, "trace": _TRACE, **_SPAN,
}  # fmt: skip
