"""The protocol of integrations that keep state of open calls, as the recorder uses it. Imports no framework."""

from __future__ import annotations

from typing import Protocol


class Follower(Protocol):
    """The state of open calls that an integration keeps; it goes when the recorder lets go of their runs."""

    def run_closed(self, run_id: str) -> None:
        """Removes the state that is kept of that run."""
        ...

    def sweep(self, ttl: float) -> None:
        """Ends calls that nothing else will end, and forgets what is older than so many seconds."""
        ...

    def forget(self) -> None:
        """Removes everything, in a forked process: what is remembered belongs to the parent."""
        ...
