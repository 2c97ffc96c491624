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
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from ragguard.errors import PartUnanswered, WorkerLost
from ragguard.parts.part import Part
from ragguard.parts.part_job import PartJob
from ragguard.parts.part_scorer import PartScorer, portable
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
        self._started: list[ProcessWorker] = []

    def connect(self) -> None:
        """Does nothing: processes are started when parts are scored."""

    def worker(self, job: PartJob) -> ProcessWorker:
        """Starts a process."""
        self._started.append(ProcessWorker(job))
        return self._started[-1]

    def close(self) -> None:
        """Waits until all processes have ended, and ends those that take too long."""
        try:
            for worker in self._started:
                worker.join()
        except KeyboardInterrupt:  # a second one: nothing is waited for any more
            for worker in self._started:
                worker.process.kill()
            raise
        finally:
            self._started.clear()


class ProcessWorker:
    """A process that scores one part at a time. A thread waits for its answers."""

    slots = 1

    def __init__(self, job: PartJob) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), name="ragguard-parts")
        # Ctrl-C is blocked for the process, until it ignores it. Multiprocessing's own helper is started before, as its
        # start unblocks Ctrl-C.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        # Sent by the thread: multiprocessing would wait for ever where a process is killed before it has read a job
        # that is larger than a pipe.
        self._job: PartJob | None = job
        self._busy = False
        self._joining = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ragguard-part-process")

    def start(self, *, after_loss: bool) -> Future[Any]:
        """Loads or reaches the engine."""
        return self._submit("start", after_loss=after_loss)

    def attempt(self, part: Part, causes: Sequence[str]) -> Future[PartCounts]:
        """Scores a part."""
        return self._submit("attempt", part=part, causes=tuple(causes))

    def stop(self) -> None:
        """Ends the process at once, unless it waits for a part and can close its engine."""
        if self._busy:
            self.process.terminate()
        else:
            with suppress(OSError):
                self._connection.send(None)
        self._thread.shutdown(wait=False)

    def join(self) -> str:
        """Waits until the process has ended, kills it where that takes too long, and returns how it ended."""
        with self._joining:
            for force in (self.process.terminate, self.process.kill):
                self.process.join(_CLOSE_SECONDS)
                if self.process.exitcode is None:
                    force()
            self.process.join()
        code = self.process.exitcode or 0
        with suppress(ValueError):
            return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"ended by signal {-code}"

    def _submit(self, method: str, **arguments: Any) -> Future[Any]:
        self._busy = True
        return self._thread.submit(self._ask, method, arguments)

    def _ask(self, method: str, arguments: dict[str, Any]) -> Any:
        """Calls a method of the `PartScorer` in the process."""
        try:
            if self._job is not None:
                self._connection.send(self._job)
                self._job = None
            self._connection.send((method, arguments))
            answer = self._connection.recv()
        except (EOFError, OSError):
            raise WorkerLost(self.join()) from None
        self._busy = False
        if isinstance(answer, Exception):
            raise answer
        return answer


def _serve(connection: Connection) -> None:
    """Answers the calls that come through the connection; the body of a process."""
    # Ctrl-C reaches the whole group; the parent ends its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, name="ragguard-parent", daemon=True).start()
    asyncio.run(_work(connection))


async def _work(connection: Connection) -> None:
    """Takes the job, then calls about its parts, until None comes."""
    scorer: PartScorer | None = None
    job = await asyncio.to_thread(connection.recv)
    while job is not None and (call := await asyncio.to_thread(connection.recv)) is not None:
        method, arguments = call
        try:
            scorer = scorer or PartScorer(job)
            answer = await getattr(scorer, method)(**arguments)
        except Exception as error:  # noqa: BLE001 - it is raised in the parent
            answer = portable(error)
        connection.send(answer)
        if isinstance(answer, PartUnanswered):
            os._exit(1)  # what is left of its engine may never end
    if scorer is not None:
        await scorer.aclose()


def _end_with_parent() -> None:
    """Ends this process when its parent has ended, however that was."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
