"""The protocol of sinks, which take scored runs. A sink is two coroutines; one that fails never stops the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from ragguard.records import ScoredRun


@runtime_checkable
class Sink(Protocol):
    """Takes scored runs, one at a time, on the scorer's event loop."""

    async def submit(self, scored: ScoredRun) -> None:
        """Sends the scored run on. May raise: the error is counted and logged, and the other sinks go on.

        With `when="step"` a run whose status is `open` comes before its end, with the scores that are new or have
        changed; each says that it is `provisional`. Its end sends all scores.
        """
        ...

    async def aclose(self) -> None:
        """Sends what is left and closes the sink."""
        ...


@runtime_checkable
class BufferingSink(Sink, Protocol):
    """A sink that takes now and sends later, so that what it took may still not arrive."""

    async def flush(self) -> None:
        """Sends what waits, and returns once it has arrived or failed."""
        ...

    def undelivered(self) -> Mapping[str, int]:
        """Returns how much of what the sink took before the last `flush` did not arrive, by kind and destination."""
        ...


@runtime_checkable
class SpanSink(Sink, Protocol):
    """A sink that writes spans and metrics: a RagGuard that is given one makes none of its own beside it."""

    def watch(self, queue_depth: Callable[[], int], dropped: Callable[[], Mapping[str, int]]) -> None:
        """Makes the sink report how many runs wait, and what was lost, by reason."""
        ...
