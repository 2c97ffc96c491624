"""What capture hands on: four events, each a finished piece of data, in the order they happened.

Hooks make them, an intake takes them (a queue, a store's writer, a list in a test). Nobody
changes an event after it was handed on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from ragguard.records import Decision, Passage, RetrievalStep, Run, Status

Splitter: TypeAlias = Callable[[str], Iterable[str | Passage]]
"""Takes the one string that a tool gave apart into passages."""


@dataclass(slots=True)
class RunStarted:
    """A run began. Its question may still be unknown; it has no steps yet."""

    run: Run


@dataclass(slots=True)
class StepEnded:
    """A retrieval ended, well or badly.

    Where `split` is set, the step has no passages yet: it came from a tool that gave one string.
    The intake's own side calls `splitters.settled(event)` before it reads the step; a splitter
    may be the user's code, and that never runs in a hook.
    """

    step: RetrievalStep
    split: Splitter | None = None
    output: str = ""


@dataclass(slots=True)
class StepAmended:
    """It became known what the model really got of a step that had ended (a reranker, a guard)."""

    run_id: str
    step_id: str
    passages: list[Passage] | None = None
    decision: Decision | None = None


@dataclass(slots=True)
class RunEnded:
    """A run ended. What is None or empty leaves what the start said."""

    run_id: str
    status: Status = "ok"
    answer: str | None = None
    question: str = ""
    references: list[str] | None = None
    sub_questions: list[str] | None = None
    pool: list[Passage] | None = None
    ended_ns: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)


Event: TypeAlias = RunStarted | StepEnded | StepAmended | RunEnded


class Intake(Protocol):
    """Takes events. Never raises; returns in microseconds unless the caller asked to wait for the disk."""

    def __call__(self, event: Event) -> None: ...
