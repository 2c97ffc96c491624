"""The protocol of integrations that keep state of open calls, as the recorder uses it. Imports no framework."""

from __future__ import annotations

from typing import Protocol


class Follower(Protocol):
    """The state of open calls that an integration keeps, and removes when the recorder forgets their runs."""

    def run_closed(self, run_id: str) -> None:
        """Removes the state of the calls of one run."""
        ...

    def sweep(self, ttl: float) -> None:
        """Ends the calls that nothing else will end, and removes the state that is older than `seconds`."""
        ...

    def forget(self) -> None:
        """Removes all state, in a forked process: the open calls belong to the parent process."""
        ...
