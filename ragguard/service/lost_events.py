"""Remembers which runs lost events, within a bound, so that each says at its end how many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ragguard.capture.events import Event, RunEnded
from ragguard.service.queue_items import QueueItem, events_in

LOST: Final = "ragguard.events_lost"
"""Metadata key of a run that says how many of its events were lost."""
RUNS_KEPT = 10_000
"""The most runs with lost events that are remembered until they end."""


class LostEvents:
    """The numbers of lost events of runs that have not ended in the store."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}

    def note(self, events: Sequence[QueueItem]) -> int:
        """Takes events that are lost; returns how many there are. Called from any thread."""
        number = 0
        for event in events:
            number += events_in(event)
            run_id = getattr(event, "run_id", "")
            if run_id and (run_id in self._of or len(self._of) < RUNS_KEPT):
                self._of[run_id] = self._of.get(run_id, 0) + 1
        return number

    def marked(self, event: Event) -> Event:
        """Returns an event as it is to be written: the end of a run that lost events has their number in its
        metadata."""
        if isinstance(event, RunEnded) and (lost := self._of.pop(event.run_id, 0)):
            return replace(event, metadata={**event.metadata, LOST: lost})
        return event
