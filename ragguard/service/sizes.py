"""Estimates how much memory a captured event holds: near enough to bound a queue, and in microseconds."""

from __future__ import annotations

from sys import getsizeof
from types import NoneType

from ragguard.capture.events import Event, OneStepRun, RunEnded, RunStarted, StepAmended, StepEnded
from ragguard.capture.open_runs import Retrieval, WholeRun
from ragguard.records import Passage, RetrievalStep

EVENT = 1024
"""Bytes of an event itself, without its content."""
_LOOKS = 2000
"""The most objects that are looked at."""
_LONG = 512
"""The number of items that stand for the rest of a list that is longer."""
_SAMPLE = 6
"""The number of items of a list, collections or objects, that stand for the others."""
_FLAT = frozenset({str, bytes, int, float, bool, NoneType})


def size_of(event: Event | WholeRun) -> int:
    """Returns about how many bytes an event holds. Texts count in full, also where others hold them as well."""
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
        case OneStepRun():
            return _held(event.step)
        case RunEnded():
            return event.answer, event.question, event.references, event.pool, event.metadata
        case StepAmended():
            return event.passages, event.decision, event.advice
        case RunStarted():
            return (event.content,)


def _held(step: object) -> tuple[object, ...]:
    if isinstance(step, RetrievalStep):
        return (step.query, step.passages, step.metadata)
    if isinstance(step, Retrieval):
        return (step.query, step.found, step.candidates, step.metadata)
    return (step,)


class _Walk:
    """Walks over some objects; ends after `_LOOKS` of them, also where they form a reference cycle."""

    def __init__(self) -> None:
        self._left = _LOOKS

    def size(self, value: object) -> int:
        """Returns about how many bytes a value has, with its content."""
        return getsizeof(value) + self._inside(value)

    def _inside(self, value: object) -> int:
        """Returns about how many bytes the content of a value has."""
        if self._left <= 0 or type(value) in _FLAT:
            return 0
        if isinstance(value, dict):
            return self._several(list(value.values())) if value else 0
        if isinstance(value, (list, tuple, set, frozenset)):
            return self._several(list(value)) if value else 0
        if isinstance(value, Passage):
            return self._several([value.text, value.metadata or None])
        held = getattr(value, "__dict__", None)
        if type(held) is dict:
            return self._several(list(held.values()))
        nbytes = getattr(value, "nbytes", None)  # arrays
        return nbytes if type(nbytes) is int else 0

    def _several(self, values: list[object]) -> int:
        """Returns about how many bytes the items of a collection have. Texts count one by one; the others by a
        sample, since a hook has little time."""
        seen = _spread(values, _LONG)
        self._left -= 1 + len(seen)
        size = sum(map(getsizeof, seen))
        if others := [one for one in seen if type(one) not in _FLAT]:
            looked_at = _spread(others, _SAMPLE)
            size += sum(map(self._inside, looked_at)) * len(others) // len(looked_at)
        return size * len(values) // len(seen) if seen else 0


def _spread(values: list[object], most: int) -> list[object]:
    """Returns at most `most` of the values, evenly spread."""
    if len(values) <= most:
        return values
    # Snapshots hold several parts of each document in turn: a stride that divides their number meets one part alone.
    stride = -(-len(values) // most) | 1
    return values[:: stride if stride % 3 else stride + 2]
