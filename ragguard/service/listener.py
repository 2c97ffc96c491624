"""The protocol by which the writer reports to its owner what it has stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class WriterListener(Protocol):
    """The owner of a writer, which is told of its progress."""

    def started(self) -> None:
        """Reports that the writer was started; called once, by the thread that captured first."""
        ...

    @property
    def waits_for_steps(self) -> bool:
        """True where a step that ends now would be scored at once."""
        ...

    def runs_due(self) -> None:
        """Reports that runs have ended and are stored; called on the writer's thread."""
        ...

    def steps_ended(self, changed: Mapping[str, bool]) -> None:
        """Reports that steps of open runs have ended or changed and are stored: the ids of these runs, each with
        whether other steps of the turn are still open. Called on the writer's thread."""
        ...

    def tick(self) -> None:
        """Does the owner's housekeeping; called on the writer's thread every `tick_seconds`."""
        ...
