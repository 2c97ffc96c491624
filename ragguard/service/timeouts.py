"""Checks of the timeouts that users give to `flush` and `close`."""

from __future__ import annotations

from ragguard.errors import InvalidInput

LONGEST = 1e8
"""Seconds, about three years: what the system's own waits can take, and as good as no limit."""


def seconds(name: str, timeout: object) -> float:
    """Returns a time to wait as a finite number; infinity is allowed and means no limit."""
    if not isinstance(timeout, int | float) or not timeout >= 0:
        raise InvalidInput(name, timeout, 'a number of seconds, 0 or more; float("inf") for no limit')
    return float(min(timeout, LONGEST))
