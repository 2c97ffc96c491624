"""Finds which step of a workflow follows which, by the events that steps emit and take.

Steps of a workflow run whenever there is an event and a worker for them, so that neither their order nor their
overlap says anything. What a step returns is an event; what it sends is kept by newer versions of LlamaIndex.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from llama_index.core.workflow import Event

from ragguard_llamaindex.clocks import CallClock

_KEPT = 256
"""The number of emitted events of a workflow that are remembered."""


class WorkflowStep(Protocol):
    """A call of a workflow's step: its clock, and whether the step retrieves."""

    @property
    def clock(self) -> CallClock: ...

    @property
    def retrieves(self) -> bool: ...


class Emissions:
    """The events of one run of a workflow, and the time at which each was emitted."""

    def __init__(self) -> None:
        self._times: dict[int, tuple[Event, int, int]] = {}
        """Each event with its time and its number among the events of its step, by the event's identity."""
        self._running: dict[WorkflowStep, Any] = {}
        self._model_done: int | None = None
        """The time at which an agent's model last answered. The tool calls that it asked for follow that."""
        self._waiting: dict[str, int] = {}
        """The latest time of steps that took an event and have not run yet, since they collect several events."""
        self.known = True
        """False where LlamaIndex does not tell what a step sends."""

    def begins(
        self, call: WorkflowStep, name: str, arguments: Mapping[str, Any]
    ) -> tuple[int | None, int | None]:
        """Notes that a step begins. Returns the time at which its cause was done, and its number among parallel
        steps; None where the cause is unknown."""
        sends = _sends()
        self.known = sends is not None
        times, ranks = [], []
        for event in events_in(arguments):
            if (found := self._emitted(event)) is not None:
                times.append(found[0])
                ranks.append(found[1])
        if name in self._waiting:
            times.append(self._waiting[name])
        if name == "call_tool" and not times and self._model_done is not None:
            times.append(self._model_done)
        self._running[call] = sends
        return (max(times) if times else None), (min(ranks) if ranks else None)

    def ended(self, call: WorkflowStep, name: str, result: object) -> None:
        """Notes that a step has ended: the events that it emitted follow all that was done in it."""
        sent = list(_sent(self._running.pop(call, None)))
        sent += [one for one in (result if isinstance(result, list) else [result]) if isinstance(one, Event)]
        for number, event in enumerate(sent):
            self._times[id(event)] = (event, call.clock.now, number)
        while len(self._times) > _KEPT:
            del self._times[next(iter(self._times))]
        if name == "run_agent_step":
            self._model_done = call.clock.now
        if not sent and not call.retrieves:
            self._waiting[name] = max(self._waiting.get(name, 0), call.clock.now)
        else:
            self._waiting.pop(name, None)

    def _emitted(self, event: Event) -> tuple[int, int] | None:
        found = self._times.get(id(event))
        if found is not None and found[0] is event:
            return found[1], found[2]
        for call, sends in list(self._running.items()):
            for number, sent in enumerate(_sent(sends)):
                if sent is event:  # the step that sent the event is still at work
                    return call.clock.now, number
        return None


def events_in(arguments: Mapping[str, Any]) -> Iterator[Event]:
    """Returns the events that a step was given: one, or several that were collected for it."""
    for value in [*arguments.values(), *arguments.get("kwargs", {}).values()]:
        if isinstance(value, Event):
            yield value
        elif isinstance(value, list):
            yield from (one for one in value if isinstance(one, Event))


def _sends() -> Any:
    """Returns what the step at work has sent so far; None in versions of LlamaIndex that do not keep it."""
    try:
        from workflows.runtime.types.results import StepWorkerStateContextVar

        return getattr(StepWorkerStateContextVar.get(), "sends", None)
    except (ImportError, LookupError):
        return None


def _sent(sends: Any) -> Iterator[Event]:
    for one in list(getattr(sends, "entries", ())):
        event = getattr(one, "event", None)
        if isinstance(event, Event):
            yield event
