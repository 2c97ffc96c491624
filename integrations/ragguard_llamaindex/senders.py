"""Finds which steps of a workflow run in parallel: those that take the several events of one step.

What a step returns is an event; what it sends is kept by LlamaIndex in versions that have `StepSends`. Older versions
do not report it: there, steps that overlap in time share a turn, as in plain code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llama_index.core.workflow import Event

_KEPT = 256
"""The number of events of a workflow that are remembered."""


class EventSenders:
    """The steps that sent the events of one run of a workflow."""

    def __init__(self) -> None:
        self._sent: dict[int, tuple[Event, str, int]] = {}
        """Each event of a step that sent several, with the step's span id and the event's number among them, by the
        event's identity."""
        self._running: dict[str, Any] = {}
        """The events that each step at work has sent so far, by the step's span id."""

    def begins(self, span_id: str, arguments: Mapping[str, Any]) -> tuple[str, int] | None:
        """Notes that a step begins. Returns the span id of the step that sent its event together with others, and the
        event's number among them; None for an event that was sent alone, or whose sender LlamaIndex does not tell."""
        event = next(events_in(arguments), None)
        sender = None if event is None else self._sender(event)
        self._running[span_id] = _sends()
        return sender

    def ended(self, span_id: str, result: object) -> None:
        """Notes that a step has ended, with the events that it sent and returned."""
        events = list(_sent(self._running.pop(span_id, None)))
        if isinstance(result, Event):
            events.append(result)
        for number, event in enumerate(events if len(events) > 1 else ()):
            self._sent[id(event)] = (event, span_id, number)
        while len(self._sent) > _KEPT:
            del self._sent[next(iter(self._sent))]

    def _sender(self, event: Event) -> tuple[str, int] | None:
        known = self._sent.get(id(event))
        if known is not None and known[0] is event:
            return known[1:]
        for span_id, sends in list(self._running.items()):
            events = list(_sent(sends))
            for number, sent in enumerate(events):
                if sent is event:  # the step that sent the event is still at work
                    return (span_id, number) if len(events) > 1 else None
        return None


def events_in(arguments: Mapping[str, Any]) -> Iterator[Event]:
    """Returns the events among a step's arguments."""
    for value in [*arguments.values(), *arguments.get("kwargs", {}).values()]:
        if isinstance(value, Event):
            yield value


def _sends() -> Any:
    """Returns what the step at work has sent so far; None in versions of LlamaIndex that do not keep it."""
    try:
        from workflows.runtime.types.results import StepWorkerStateContextVar

        return getattr(StepWorkerStateContextVar.get(), "sends", None)
    except (ImportError, LookupError):
        return None


def _sent(sends: Any) -> Iterator[Event]:
    for entry in list(getattr(sends, "entries", ())):
        event = getattr(entry, "event", None)
        if isinstance(event, Event):
            yield event
