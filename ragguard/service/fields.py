"""Brings the fields of a captured event to the types that a store takes.

Frameworks and users put any objects into fields: NumPy integers, None, objects of their own. What can be converted
without a loss is converted; a field that cannot is set to its default, and the record's metadata name it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import NoneType
from typing import Any, Final, TypeAlias, TypeVar, get_args

from ragguard.capture.events import Event, OneStepRun, RunEnded, RunStarted, StepAmended, StepEnded
from ragguard.capture.snapshot import passage_of, passages_of, score_of, text_in
from ragguard.records import Decision, Dropped, GuardStatus, Passage, RetrievalStep, Run, Status, SubStep

Record = TypeVar("Record", Run, RetrievalStep, SubStep, RunEnded)
Convert: TypeAlias = Callable[[Any], Any]

UNREADABLE: Final = "ragguard.fields"
"""Metadata key that names the fields whose values could not be kept."""
_LARGEST = 2**63 - 1
_STATUS, _GUARD_STATUS = frozenset(get_args(Status)), frozenset(get_args(GuardStatus))
_NUMBER = (float, int, NoneType)


def storable_event(event: Event) -> Event:
    """Returns the event itself where every field has its type, else a copy in which every field has."""
    match event:
        case OneStepRun():
            return OneStepRun(_fitted(event.run, _RUN), _step(event.step))
        case StepEnded():
            step = event.step
            if (fitting := _step(step)) is not step:
                return StepEnded(fitting, turn_open=event.turn_open)
        case RunStarted():
            run = event.run
            if (whole := _fitted(run, _RUN)) is not run:
                return RunStarted(whole, event.identity)
        case RunEnded():
            return _fitted(event, _RUN_ENDED)
        case StepAmended():
            return _amended(event)
    return event


def _step(step: RetrievalStep) -> RetrievalStep:
    parts = [_fitted(part, _SUB_STEP) for part in step.sub_steps] if step.sub_steps else step.sub_steps
    if any(new is not old for new, old in zip(parts, step.sub_steps, strict=True)):
        step = replace(step, sub_steps=parts)
    return _fitted(step, _STEP)


def _amended(event: StepAmended) -> StepAmended:
    decision = event.decision
    if type(event.run_id) is str and type(event.step_id) is str and _fits(decision):
        return event
    if not _fits(decision):
        decision = _decision(decision) if isinstance(decision, Decision) else None
    return StepAmended(
        f"{event.run_id}", f"{event.step_id}", event.passages, decision, metadata=event.metadata,
        index=event.index, read_as=event.read_as, error=event.error, advice=event.advice,
    )  # fmt: skip


def _integer(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    number = operator.index(value)
    if not -_LARGEST <= number <= _LARGEST:
        raise OverflowError
    return number


def _text(value: Any) -> str:
    if value is None:
        raise TypeError
    return str(value)


def _status(value: Any) -> str:
    if value not in _STATUS:
        raise ValueError
    return str(value)


def _decision(value: Any) -> Decision:
    if not isinstance(value, Decision):
        raise TypeError
    dropped = value.dropped if isinstance(value.dropped, list | tuple) else ()
    return Decision(
        passages_of(value.kept),
        [_dropped(one) for one in dropped if isinstance(one, Dropped)],
        value.status if isinstance(value.status, str) and value.status in _GUARD_STATUS else "error",
        score_of(value.elapsed_ms, {}) or 0.0,
        reason=text_in(value.reason),
        engine=text_in(value.engine),
        started_ns=value.started_ns if _is_whole(value.started_ns) else 0,
    )


def _dropped(one: Dropped) -> Dropped:
    return Dropped(
        passage_of(one.passage),
        one.position if _is_whole(one.position) else 0,
        text_in(one.reason),
        score_of(one.utility, {}),
        p_abstain=score_of(one.p_abstain, {}),
        p_relevant=score_of(one.p_relevant, {}),
    )


def _fits(decision: Decision | None) -> bool:
    """Returns True for None, and for a decision whose fields all have their types, as those of a guard have."""
    if decision is None:
        return True
    return (
        type(decision) is Decision
        and type(decision.kept) is list
        and type(decision.dropped) is list
        and all(type(one) is Passage and type(one.text) is type(one.id) is str for one in decision.kept)
        and all(
            type(one) is Dropped
            and type(one.passage) is Passage
            and type(one.passage.text) is type(one.passage.id) is type(one.reason) is str
            and _is_whole(one.position)
            and all(type(number) in _NUMBER for number in (one.utility, one.p_abstain, one.p_relevant))
            for one in decision.dropped
        )
        and all(type(text) is str for text in (decision.status, decision.reason, decision.engine))
        and decision.status in _GUARD_STATUS
        and type(decision.elapsed_ms) in _NUMBER
        and _is_whole(decision.started_ns)
    )


def _is_whole(value: object) -> bool:
    return type(value) is int and -_LARGEST <= value <= _LARGEST


_DEFAULTS: Mapping[Convert, Any] = {_integer: 0, _text: "", _status: "error", _decision: None}
_STEP: Mapping[str, Convert] = {
    "id": _text, "run_id": _text, "index": _integer, "turn": _integer, "query": _text, "started_ns": _integer,
    "ended_ns": _integer, "status": _status, "tool": _text, "error": _text, "decision": _decision,
}  # fmt: skip
_SUB_STEP: Mapping[str, Convert] = {
    "query": _text, "name": _text, "started_ns": _integer, "ended_ns": _integer, "status": _status,
}  # fmt: skip
_RUN: Mapping[str, Convert] = {
    "id": _text, "question": _text, "name": _text, "status": _status, "started_ns": _integer,
    "ended_ns": _integer,
}  # fmt: skip
_RUN_ENDED: Mapping[str, Convert] = {
    "run_id": _text, "status": _status, "question": _text, "ended_ns": _integer,
}  # fmt: skip


def _fitted(record: Record, fields: Mapping[str, Convert]) -> Record:
    """Returns the record itself where its fields have their types, which is nearly always so and must cost little."""
    changes: dict[str, Any] = {}
    unreadable = []
    for name, convert in fields.items():
        value = getattr(record, name)
        kind = type(value)
        if convert is _text:
            if kind is str:
                continue
        elif convert is _integer:
            if kind is int and -_LARGEST <= value <= _LARGEST:
                continue
        elif convert is _decision:
            if _fits(value):
                continue
        elif kind is str and value in _STATUS:
            continue
        try:
            changes[name] = convert(value)
        except BaseException:  # noqa: BLE001 - a value of the user's may raise anything when it is read
            changes[name] = _DEFAULTS[convert]
            if value is not None:
                unreadable.append(f"{name}: {kind.__name__}")
    if not changes:
        return record
    metadata = getattr(record, "metadata", None)
    if unreadable and metadata is not None:
        changes["metadata"] = {**metadata, UNREADABLE: "not kept: " + ", ".join(unreadable)}
    return replace(record, **changes)
