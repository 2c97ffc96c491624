"""How much memory a captured event holds, near enough to bound a queue, in microseconds."""

from __future__ import annotations

from sys import getsizeof

from ragguard.capture.open_runs import Retrieval, WholeRun
from ragguard.events import Event, RunEnded, RunStarted, StepAmended, StepEnded
from ragguard.records import Passage, RetrievalStep

EVENT = 1024
"""Bytes of an event beside what it holds."""
_OBJECT = 64
_NODES = 600
"""So many objects are looked at; of a list that is longer, a sample stands for the rest."""
_SAMPLE = 64


def size_of(event: Event | WholeRun) -> int:
    """Bytes, about. Texts count in full, whoever else holds them."""
    try:
        return EVENT + _Walk().size(_content(event))
    except Exception:  # noqa: BLE001 - an object of the user's may raise anything when it is read
        return EVENT


def _content(event: Event | WholeRun) -> tuple[object, ...]:
    match event:
        case WholeRun():
            return event.query, event.found
        case StepEnded():
            return _held(event.content)
        case RunEnded():
            return event.answer, event.question, event.references, event.pool, event.metadata
        case StepAmended():
            return event.passages, event.decision
        case RunStarted():
            return (event.content,)


def _held(step: object) -> tuple[object, ...]:
    if isinstance(step, RetrievalStep):
        return (step.query, step.passages, step.metadata)
    if isinstance(step, Retrieval):
        return (step.query, step.found, step.candidates, step.metadata)
    return (step,)


class _Walk:
    """One look at some objects; ends after so many of them, also where they form a cycle."""

    def __init__(self) -> None:
        self._left = _NODES

    def size(self, value: object) -> int:
        self._left -= 1
        kind = type(value)
        if kind is str:
            return getsizeof(value)
        if self._left <= 0 or value is None or kind is float or kind is int:
            return _OBJECT
        if isinstance(value, Passage):
            return _OBJECT + getsizeof(value.text) + (self.size(value.metadata) if value.metadata else 0)
        if kind is dict:
            return _OBJECT + self._several(list(value.values()))  # type: ignore[attr-defined]
        if isinstance(value, (list, tuple, set, frozenset)):
            return _OBJECT + self._several(value)
        if isinstance(value, (str, bytes, bytearray)):
            return getsizeof(value)
        held = getattr(value, "__dict__", None)
        if type(held) is dict:
            return _OBJECT + self._several(list(held.values()))
        nbytes = getattr(value, "nbytes", None)  # arrays
        return _OBJECT + (nbytes if type(nbytes) is int else 0)

    def _several(self, values: list[object] | tuple[object, ...] | set[object] | frozenset[object]) -> int:
        count = len(values)
        if count <= _SAMPLE:
            return sum(map(self.size, values))
        values = list(values)
        stride = count // _SAMPLE
        # Snapshots hold several parts of each document in turn; a multiple of three would meet the texts alone.
        seen = values[:: stride + 1 if stride % 3 == 0 else stride]
        return sum(map(self.size, seen)) * count // len(seen)
