"""What the recorder asks of integrations that keep state of open calls. Imports no framework."""

from __future__ import annotations

from typing import Protocol


class Follower(Protocol):
    """What an integration remembers of open calls; it goes when the recorder lets go of their runs."""

    def run_closed(self, run_id: str) -> None:
        """Removes what is remembered of that run."""
        ...

    def sweep(self, ttl: float) -> None:
        """Ends what nobody will end, and forgets what is older than so many seconds."""
        ...

    def forget(self) -> None:
        """Removes everything, in a forked process: what is remembered belongs to the parent."""
        ...
