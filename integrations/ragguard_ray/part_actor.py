"""The actor that scores parts in a process of a Ray cluster. Knows nothing of Ray."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ragguard.errors import PartUnanswered, StoreError
from ragguard.parts.part import Part
from ragguard.parts.part_job import PartJob
from ragguard.parts.part_scorer import PartScorer, portable
from ragguard.runtime.threads import BackgroundLoop


class PartActor:
    """Scores parts. Its methods return an error in place of raising it, since Ray would add tracebacks of its own.

    Args:
        job: The settings.
        environment: Variables that this process gets where it does not have them.
        folder: The driver's folder, so that relative paths name the same here.
    """

    def __init__(self, job: PartJob, environment: Mapping[str, str], folder: str) -> None:
        for name, value in environment.items():
            os.environ.setdefault(name, value)
        with suppress(OSError):
            os.chdir(folder)
        self._job = job
        self._loop = BackgroundLoop("ragguard-parts")
        self._scorer: PartScorer | None = None

    def start(self, after_loss: bool) -> Any:
        """Loads or reaches the engine; returns None, or the error."""
        return self._run(self._start(after_loss))

    def attempt(self, part: Part, causes: Sequence[str]) -> Any:
        """Scores a part; returns its counts, or the error."""
        assert self._scorer is not None
        answer = self._run(self._scorer.attempt(part, causes))
        if isinstance(
            answer, PartUnanswered
        ):  # the driver ends this process; those of its engine would go on
            for child in multiprocessing.active_children():
                child.kill()
        return answer

    async def _start(self, after_loss: bool) -> None:
        if self._job.folder.settings() is None:
            raise StoreError(
                f"the machine {socket.gethostname()} does not see {self._job.folder}; name a folder that all machines "
                "of the cluster share"
            )
        self._scorer = PartScorer(self._job)
        await self._scorer.start(after_loss=after_loss)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self._loop.run(work)
        except Exception as error:  # noqa: BLE001 - the driver raises it
            return portable(error)
