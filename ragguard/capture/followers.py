"""What the recorder asks of those who remember more of open calls than it does. It knows no framework."""

from __future__ import annotations

from typing import Protocol


class Follower(Protocol):
    """What an integration remembers of open calls; it goes when the recorder lets go of their runs."""

    def run_closed(self, run_id: str) -> None:
        """Nothing of that run is to be remembered any more."""
        ...

    def sweep(self, ttl: float) -> None:
        """Ends what nobody will end, and forgets what is older than so many seconds."""
        ...

    def forget(self) -> None:
        """This is a forked process: what is remembered is the parent's."""
        ...
