"""Runs workers as processes of this machine, with the standard library alone.

The processes are started anew (spawned), so a script that scores on processes guards its start with
`if __name__ == "__main__":`.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection, wait

from ragguard.errors import WorkerLost
from ragguard.parts.job import PartJob
from ragguard.parts.part import Part
from ragguard.parts.part_scorer import PartScorer
from ragguard.runtime.arguments import whole_number
from ragguard.storage.files.partfolder import PartCounts

_CLOSE_SECONDS = 5.0


class Processes:
    """An executor of several processes on this machine.

    Args:
        workers: How many processes, 1 or more. Each sees all GPUs of the machine.
    """

    def __init__(self, workers: int) -> None:
        self.workers = whole_number("workers", workers, 1)
        self._started: list[ScoringProcess] | None = None
        self._lock = threading.Lock()

    def worker(self, job: PartJob) -> ScoringProcess:
        """Starts a process."""
        with self._lock:
            if self._started is None:
                raise WorkerLost("was to start after the end of its job")
            self._started.append(ScoringProcess(job))
            return self._started[-1]

    def __enter__(self) -> Processes:
        self._started = []
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all processes, and waits until they have ended."""
        with self._lock:
            started, self._started = self._started or [], None
        for process in started:
            process.stop()
        for process in started:
            process.join()


class ScoringProcess:
    """A process that scores one part at a time; called from any thread, by one at a time."""

    def __init__(self, job: PartJob) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name="ragguard-parts")
        self._process.start()
        theirs.close()
        # Sent with the first part: multiprocessing would wait for ever where a process ends before it has read a job
        # that is larger than a pipe.
        self._job: PartJob | None = job
        self._busy = False

    def __call__(self, part: Part) -> PartCounts:
        """Scores a part; raises WorkerLost where the process has ended."""
        self._busy = True
        try:
            if self._job is not None:
                self._connection.send(self._job)
                self._job = None
            self._connection.send(part)
            answer = self._connection.recv()
        except (EOFError, OSError):
            self._process.join(_CLOSE_SECONDS)
            raise WorkerLost(f"ended with exit code {self._process.exitcode}") from None
        self._busy = False
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, PartCounts)
        return answer

    def stop(self) -> None:
        """Ends the process at once, unless it waits for a part and can close its engine."""
        if self._busy:
            self._process.terminate()
        else:
            self._connection.close()

    def join(self) -> None:
        """Waits until the process has ended, and kills it where that takes too long."""
        self._process.join(_CLOSE_SECONDS)
        self._process.kill()
        self._process.join()


def _serve(connection: Connection) -> None:
    """Scores the parts that come through the connection; the body of a process."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the parent ends its processes
    threading.Thread(target=_end_with_parent, name="ragguard-parent", daemon=True).start()
    asyncio.run(_work(connection))


async def _work(connection: Connection) -> None:
    """Takes the job, then parts, until the parent closes the connection."""
    with suppress(EOFError):
        scorer = PartScorer(await asyncio.to_thread(connection.recv))
        try:
            while True:
                answer = await scorer.answer(await asyncio.to_thread(connection.recv))
                connection.send(answer)
                if isinstance(answer, WorkerLost):
                    os._exit(1)  # what is left of its engine may never end
        finally:
            await scorer.aclose()


def _end_with_parent() -> None:
    """Ends this process when its parent has ended, however that was."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
