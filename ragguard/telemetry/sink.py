"""The protocol of sinks, two coroutines that take scored runs, and the sink that writes a file. A sink that fails never
stops the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from ragguard.errors import RagguardError
from ragguard.records import ScoredRun
from ragguard.runtime.arguments import check_output, file_path
from ragguard.storage.files.runfile import score_lines


class DestinationAway(RagguardError):
    """The destination of a sink does not answer, or takes nothing now; the sink gets the same run again later."""


@runtime_checkable
class Sink(Protocol):
    """Takes scored runs, one at a time, on the scorer's event loop."""

    async def submit(self, scored: ScoredRun) -> None:
        """Sends the scored run on. May raise: the error is counted and logged. The other sinks continue, also while
        this one hangs. A run that is not taken within 30 s counts as not delivered. After a DestinationAway the run
        stays due in the store, and the sink gets it again until it takes it.

        With `when="step"` a run whose status is `open` comes before its end, with the scores that are new or have
        changed; each says that it is `provisional`. Its end sends all scores.
        """
        ...

    async def aclose(self) -> None:
        """Sends all that is not sent yet, and closes the sink."""
        ...


@runtime_checkable
class BufferingSink(Sink, Protocol):
    """A sink that sends scores some time after `submit`, so that they may still be lost."""

    async def flush(self) -> None:
        """Sends the waiting scores, and returns once they have arrived or failed."""
        ...

    def undelivered(self) -> Mapping[str, int]:
        """Returns how much of what the sink took before the last `flush` did not arrive, by kind and destination."""
        ...


@runtime_checkable
class SpanSink(Sink, Protocol):
    """A sink that writes spans and metrics: a RagGuard that is given one makes none of its own beside it."""

    def watch(self, queue_depth: Callable[[], int], dropped: Callable[[], Mapping[str, int]]) -> None:
        """Registers two functions of a RagGuard whose numbers the sink reports: how many runs wait, and how many
        were lost, by reason."""
        ...


class JsonlSink:
    """Appends every scored run to a file, in the format of score files: one score or failure a line, a run's at once.

    Args:
        path: The file; its folder must exist.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = file_path("path", path)
        check_output("path", path)

    async def submit(self, scored: ScoredRun) -> None:
        """Writes one scored run."""
        text = "".join(score_lines(scored))
        if text:
            await asyncio.to_thread(self._append, text)

    async def aclose(self) -> None:
        """Does nothing: no run is held back."""

    def _append(self, text: str) -> None:
        with self._path.open("a", encoding="ascii") as file:
            file.write(text)
