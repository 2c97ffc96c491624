"""The protocol by which the writer tells its owner what it has stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class WriterListener(Protocol):
    """The owner of a writer, which is told of its progress."""

    def started(self) -> None:
        """The writer was started; called once, by whoever captured first."""
        ...

    @property
    def waits_for_steps(self) -> bool:
        """True where a step that ends now would be scored at once."""
        ...

    def runs_due(self) -> None:
        """Runs have ended and are stored; called on the writer's thread."""
        ...

    def steps_ended(self, changed: Mapping[str, bool]) -> None:
        """Steps of open runs have ended or changed and are stored; the ids of these runs, each with whether other steps
        of the turn are still open. Called on the writer's thread."""
        ...

    def tick(self) -> None:
        """Does the owner's housekeeping; called on the writer's thread every `tick_seconds`."""
        ...
