"""What `flush` and `close` say: what was done, and what was not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Report:
    """Truthy only if everything captured before the call is scored and stored, or has failed for good."""

    complete: bool
    captured: int = 0
    """Runs that ended, since this RagGuard was made."""
    steps: int = 0
    scored: int = 0
    """Runs of which everything could be said."""
    failed: int = 0
    """Runs of which something could not be said, and is not tried again."""
    pending: int = 0
    """Runs that have ended and are still to be scored, those that wait for another attempt included."""
    open: int = 0
    """Runs that have not ended: they are scored when they do."""
    dropped: int = 0
    """Runs that were let go unscored, for want of a store and of room."""
    lost: int = 0
    """Events that never reached the store, and whole runs that were in memory when it had no more room."""
    degraded: bool = False
    """True while memory stands in for a disk that failed."""
    seconds: float = 0.0

    def __bool__(self) -> bool:
        return self.complete

    def __str__(self) -> str:
        parts = [
            f"{number} {what}"
            for number, what in (
                (self.scored, "scored"), (self.failed, "failed"), (self.pending, "pending"), (self.open, "open"),
                (self.dropped, "dropped"), (self.lost, "events lost"),
            )
            if number
        ]  # fmt: skip
        done = "everything is scored and stored" if self.complete else "not everything is scored"
        nothing = "nothing was captured" if self.complete else "what was captured waits for the store"
        return f"{done}: {', '.join(parts) or nothing} ({self.seconds:.1f} s)"
