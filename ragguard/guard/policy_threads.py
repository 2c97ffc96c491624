"""Threads on which one guard's policies run: a policy that sleeps or computes for long holds up no event loop.

Each guard has its own, so that the policies of one guard do not delay those of another. The threads are daemons: a
policy that never returns does not keep a process from ending.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")

MOST = 8
"""Threads of one guard; further calls wait, within their budgets."""
IDLE_S = 10.0
"""Seconds after which a thread without work ends."""


class PolicyThreads(Generic[T]):
    """Runs jobs on up to `most` daemon threads, started when they are needed, first come, first served."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self.renew()

    def renew(self) -> None:
        """Begins without threads and jobs, at first and in a forked process, where the parent's threads are not."""
        self._changed = threading.Condition()
        self._jobs: deque[tuple[Future[T], Callable[[], T]]] = deque()
        self._threads = self._idle = 0

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Starts the job as soon as a thread is free; a future that is cancelled before is not started."""
        future: Future[T] = Future()
        with self._changed:
            self._jobs.append((future, job))
            if len(self._jobs) > self._idle and self._threads < self._most:
                threading.Thread(target=self._work, name="ragguard-policy", daemon=True).start()
                self._threads += 1
            self._changed.notify()
        return future

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._jobs:
                    self._idle += 1
                    notified = self._changed.wait(IDLE_S)
                    self._idle -= 1
                    if not notified and not self._jobs:
                        self._threads -= 1
                        return
                future, job = self._jobs.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(job())
            except BaseException as error:  # noqa: BLE001 - SystemExit too: it would end this thread
                future.set_exception(error)
            del future, job  # an idle thread holds no passages
