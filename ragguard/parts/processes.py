"""Scores parts on several processes of this machine, with the standard library alone.

Each process works on one part at a time. One that ends without a result is replaced and its part is tried again.
The processes are started anew (spawned), so a script that scores on processes guards its start with
`if __name__ == "__main__":`.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Literal

from ragguard.errors import EngineError, InvalidInput, PartUnanswered, RagguardError
from ragguard.parts.part import Part
from ragguard.parts.scoring import PartScorer
from ragguard.parts.settings import PartJob
from ragguard.runtime.arguments import whole_number
from ragguard.runtime.faults import describe
from ragguard.storage.files.parttables import PartCounts

_CLOSE_SECONDS = 5.0
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_LOST_AT_START = 3
"""The number of processes in a row that end before they can score, after which the job ends."""


@dataclass(frozen=True, slots=True)
class ProcessNews:
    """A message from a process to its parent: it can score, a part is complete, or it ends and says why."""

    kind: Literal["ready", "complete", "unanswered", "failed"]
    counts: PartCounts | None = None
    error: RagguardError | None = None


class _PartProcess:
    """A process that scores one part at a time."""

    def __init__(self, job: PartJob, gpus: str | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(job, theirs, gpus), name="ragguard-parts")
        # Ctrl-C is blocked for the process, until it ignores it. Multiprocessing's own helper is started before, as its
        # start unblocks Ctrl-C.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self.gpus = gpus
        self.part: Part | None = None
        self.ready = False
        """True once the process has said that it can score."""

    def take(self, part: Part) -> None:
        """Hands a part to the process."""
        self.part = part
        with suppress(OSError):  # it has ended, which is seen when it is heard
            self.connection.send(part)

    def heard(self) -> ProcessNews | None:
        """Returns the next message of the process; None where the process has ended."""
        try:
            message = self.connection.recv()
        except (EOFError, OSError):
            return None
        return message if isinstance(message, ProcessNews) else None

    def leave(self) -> None:
        """Asks the process to end: at once, unless it waits for a part and can close its engine."""
        self.connection.close()
        if self.part is not None or not self.ready:
            self._process.terminate()

    def kill(self) -> None:
        """Ends the process at once."""
        self._process.kill()

    def join(self) -> str:
        """Waits until the process has ended, kills it where that takes too long, and returns how it ended."""
        for force in (self._process.terminate, self._process.kill):
            self._process.join(_CLOSE_SECONDS)
            if self._process.exitcode is None:
                force()
        self._process.join()
        code = self._process.exitcode or 0
        with suppress(ValueError):
            return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"ended by signal {-code}"


class Processes:
    """An executor of several processes on this machine.

    Args:
        workers: How many processes, 1 or more.
        gpus: How many GPUs each process sees, a whole number; no two processes see the same one. The first ones of
            CUDA_VISIBLE_DEVICES are taken, where that is set. 0: every process sees all.
    """

    def __init__(self, workers: int, gpus: int = 0) -> None:
        self.workers = whole_number("workers", workers, 1)
        whole_number("gpus", gpus, 0)
        self._devices: list[str | None] = _devices(workers, gpus) if gpus else [None] * workers

    def connect(self) -> None:
        """Does nothing: processes are started when parts are scored."""

    def completed(self, job: PartJob, parts: Sequence[Part]) -> Generator[PartCounts, None, None]:
        waiting = deque(parts)
        crew: list[_PartProcess] = []
        lost = 0
        """Processes in a row that ended before they could score."""
        try:
            while waiting or any(worker.part is not None for worker in crew):
                self._occupy(job, crew, waiting)
                for worker in _with_news(crew):
                    message = worker.heard()
                    if message is None or message.kind == "unanswered":
                        crew.remove(worker)
                        how = worker.join()
                        lost += not worker.ready
                        if lost >= _LOST_AT_START:
                            raise EngineError(
                                f"{lost} processes in a row ended before they could score, the last one {how}; their "
                                "own messages, if any, stand above"
                            )
                        if worker.part is not None:
                            waiting.appendleft(worker.part)
                            key = worker.part.key(job.digest)
                            job.folder.explain_last(key, job.invocation, f"its process {how}")
                    elif message.error is not None:
                        raise message.error
                    elif message.counts is not None:
                        worker.part = None
                        yield message.counts
                    else:
                        worker.ready, lost = True, 0
        finally:
            try:
                for worker in crew:
                    worker.leave()
                for worker in crew:
                    worker.join()
            except KeyboardInterrupt:  # a second one: nothing is waited for any more
                for worker in crew:
                    worker.kill()
                raise

    def _occupy(self, job: PartJob, crew: list[_PartProcess], waiting: deque[Part]) -> None:
        """Hands waiting parts to idle processes, and starts processes for those parts that are still waiting."""
        for worker in crew:
            if waiting and worker.ready and worker.part is None:
                worker.take(waiting.popleft())
        idle = sum(worker.part is None for worker in crew)
        missing = min(self.workers - len(crew), len(waiting) - idle)
        free = list((Counter(self._devices) - Counter(worker.gpus for worker in crew)).elements())
        crew.extend(_PartProcess(job, free[number]) for number in range(missing))


def _with_news(workers: Sequence[_PartProcess]) -> list[_PartProcess]:
    """Waits until at least one process has sent a message or ended, and returns all that have."""
    found = wait([worker.connection for worker in workers])
    return [worker for worker in workers if worker.connection in found]


def _devices(workers: int, gpus: int) -> list[str | None]:
    """Returns which GPUs each process sees, as CUDA_VISIBLE_DEVICES takes them."""
    given = os.environ.get(_VISIBLE)
    found = [str(one) for one in range(workers * gpus)] if given is None else given.split(",")
    if len(found) < workers * gpus:
        raise InvalidInput(
            "gpus", gpus, f"at most {len(found) // workers}, as {_VISIBLE} names {len(found)} for {workers}"
        )
    return [",".join(found[first * gpus : (first + 1) * gpus]) for first in range(workers)]


def _serve(job: PartJob, connection: Connection, gpus: str | None) -> None:
    """Scores the parts that come through the connection; the body of a process."""
    if gpus is not None:
        os.environ[_VISIBLE] = gpus  # before anything looks for GPUs
    # Ctrl-C reaches the whole group; the parent ends its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, name="ragguard-parent", daemon=True).start()
    with suppress(EOFError, OSError):  # the parent has closed the connection
        asyncio.run(_work(job, connection))


async def _work(job: PartJob, connection: Connection) -> None:
    try:
        scorer = PartScorer(job)
        await scorer.start()
        connection.send(ProcessNews("ready"))
        with suppress(EOFError):
            while True:
                part = await asyncio.to_thread(connection.recv)
                connection.send(ProcessNews("complete", counts=await scorer.attempt(part)))
        await scorer.aclose()
    except PartUnanswered:
        connection.send(ProcessNews("unanswered"))
        os._exit(1)  # what is left of its engine may never end
    except Exception as error:  # noqa: BLE001 - it ends the job, with one sentence of the parent's
        connection.send(ProcessNews("failed", error=_portable(error)))


def _portable(error: Exception) -> RagguardError:
    """Returns an error that can be pickled, which those with arguments of their own cannot."""
    if isinstance(error, EngineError):
        return EngineError(str(error))
    return RagguardError(
        str(error) if isinstance(error, RagguardError) else f"a process failed: {describe(error)}"
    )


def _end_with_parent() -> None:
    """Ends this process when its parent has ended, however that was."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
