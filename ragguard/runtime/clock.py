"""The time of day in this process, which never goes back: it is read once, and a monotonic clock counts on from there.

Order and due times by this clock do not change when somebody sets the machine's clock.
"""

from __future__ import annotations

import time

_START = time.time_ns() - time.monotonic_ns()


def now_ns() -> int:
    """Returns nanoseconds since 1970: the machine's clock at the start of the process, counted on monotonically."""
    return _START + time.monotonic_ns()
