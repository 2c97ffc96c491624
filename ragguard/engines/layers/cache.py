"""`Cache`, the layer that asks no question twice: memory first, then a file that processes may share, then the engine.

A kept value belongs to the model's fingerprint, one prompt and the parameters, its labels included; requests say what
their keys are. A request whose reply is meant to differ each time is never kept.

What is in flight is not asked again. The first call that looks for a key is its leader; others follow and wait for
the leader's answer. When a leader is cancelled, or fails in a way that may be its own, its followers ask again, and
one of them becomes the leader. A call never follows a less urgent one. Leaders and followers may live on different
event loops.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from ragguard.engines.base import Engine
from ragguard.engines.engine import Layer, send_to
from ragguard.engines.requests import Reply, Request, Value
from ragguard.errors import Closed, EngineError
from ragguard.records import Usage
from ragguard.runtime.arguments import file_path, whole_number
from ragguard.runtime.deadline import until
from ragguard.runtime.per_process import disconnect_before_forks
from ragguard.runtime.threads import DaemonThreads
from ragguard.text.secret_filter import logger

Values: TypeAlias = Mapping[bytes, Value]


class Cache(Layer):
    """Keeps answers in memory and, with a `path`, in a file too, so that an equal question is asked once.

    An answer in memory takes about half a kilobyte: 25 MB with the default.

    Args:
        engine: The engine that the layer wraps.
        path: The file, which several processes may share. None: memory only.
        max_items: How many answers are kept in memory, 1 or more; those of many tokens weigh as much as they take.
            The least recently used go first.
        max_stored: How many answers the file has at most when it is opened, 1 or more.
    """

    def __init__(
        self,
        engine: Engine,
        path: str | Path | None = None,
        max_items: int = 50_000,
        max_stored: int = 2_000_000,
    ) -> None:
        for name, value in (("max_items", max_items), ("max_stored", max_stored)):
            whole_number(name, value, 1)
        super().__init__(engine)
        self._disk = None if path is None else DiskCache(file_path("cache", path), max_stored)
        self._max_weight = max_items
        self._kept: OrderedDict[bytes, tuple[int, Value]] = OrderedDict()
        """Each value in memory with its weight, the least recently used first."""
        self._weight = 0
        self._in_flight: dict[bytes, _Leader] = {}
        self._lock = threading.Lock()
        self._closed = False

    async def send(self, request: Request) -> Reply:
        """Replies with the kept values, and asks the engine for the others."""
        if self._closed:
            raise Closed("this engine was closed; connect again")
        if not request.repeatable:
            return await send_to(self._engine, request)
        keys = request.keys(await self.info_within(request.deadline))
        prompt_of = dict(zip(keys, request.prompts, strict=True))
        values, paid = dict[bytes, Value](), list[Usage]()
        while missing := [key for key in prompt_of if key not in values]:
            leader, followed = self._claim(missing, request.priority, values)
            if leader.keys:
                unanswered = request.with_prompts([prompt_of[key] for key in leader.keys])
                values.update(await self._lead(leader, unanswered, paid))
            for other in followed:
                async with until(request.deadline, "a call that waited for an equal one"):
                    brought = await asyncio.wrap_future(other)
                values.update((key, brought[key]) for key in missing if key in brought)
        known = len(keys) - sum(usage.prompts for usage in paid)
        return Reply([values[key] for key in keys], sum(paid, Usage(prompts=known, cached=known)))

    async def aclose(self) -> None:
        """Writes what is left, closes the file and the wrapped engine."""
        if not self._closed:
            self._closed = True
            if self._disk is not None:
                await self._disk.close()
        await self._engine.aclose()

    def _claim(
        self, keys: Sequence[bytes], priority: int, found: dict[bytes, Value]
    ) -> tuple[_Leader, set[_Leader]]:
        """Adds the values in memory to `found`. Returns this call as the leader of the keys that no other call asks
        for, and the leaders of the others."""
        leader, followed = _Leader(priority), set[_Leader]()
        with self._lock:
            for key in keys:
                other = self._in_flight.get(key)
                if kept := self._kept.get(key):
                    self._kept.move_to_end(key)
                    found[key] = kept[1]
                elif other is not None and other.priority <= priority:
                    followed.add(other)
                else:
                    leader.keys.append(key)
                    self._in_flight[key] = leader
        return leader, followed

    async def _lead(self, leader: _Leader, request: Request, paid: list[Usage]) -> Values:
        """Returns the values of the request's prompts, from the file or from the engine, keeps them, and gives them to
        the followers. What the engine's reply cost is added to `paid`."""
        values, shared = dict[bytes, Value](), None
        try:
            if self._disk is not None:
                values = await self._disk.read(leader.keys)
                self._keep(values)
            prompts = zip(leader.keys, request.prompts, strict=True)
            asked = {key: prompt for key, prompt in prompts if key not in values}
            if asked:
                reply = await send_to(self._engine, request.with_prompts([*asked.values()]))
                paid.append(replace(reply.usage, prompts=len(asked)))
                fresh = dict(zip(asked, reply.values, strict=True))
                self._keep(fresh)
                if self._disk is not None:
                    self._disk.write(fresh)
                values |= fresh
            return values
        except EngineError as error:
            # Followers would get the same error of a server that is down, but not of the leader's own bad prompt.
            shared = error if error.retryable else None
            raise
        finally:
            with self._lock:
                for key in leader.keys:
                    if self._in_flight.get(key) is leader:
                        del self._in_flight[key]
            if shared is None:
                leader.set_result(values)
            else:
                leader.set_exception(shared)
            # Breaks the reference cycle between the error, this frame and the leader, which holds it.
            shared = leader = None  # type: ignore[assignment]

    def _keep(self, values: Values) -> None:
        """Keeps values in memory; the least recently used go where there are too many."""
        with self._lock:
            for key, value in values.items():
                self._weight -= self._kept.pop(key, (0, ()))[0]
                # Numbers, or samples with the numbers of their tokens: most of what a long answer takes.
                first = value[0]
                samples = first if first and isinstance(first[0], tuple) else [("", first, True)]
                weight = 1 + sum([len(logprobs) for _, logprobs, _ in samples]) // 8
                self._kept[key] = weight, value
                self._weight += weight
            while self._weight > self._max_weight and len(self._kept) > 1:
                _, (weight, _) = self._kept.popitem(last=False)
                self._weight -= weight


class _Leader(Future[Values]):
    """The one call that brings the values of some keys: a future of these, with none where followers must ask again."""

    def __init__(self, priority: int) -> None:
        super().__init__()
        self.priority = priority
        self.keys: list[bytes] = []
        self.set_running_or_notify_cancel()  # a follower that stops waiting must not cancel it for the others


_log = logger("ragguard.cache")

# The number belongs to the name: a later layout has another table and never reads these rows.
_TABLE = "answers_1"
_SCHEMA = f"""
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS {_TABLE} (key BLOB PRIMARY KEY, value BLOB NOT NULL, written INTEGER NOT NULL)
  WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS {_TABLE}_written ON {_TABLE} (written);
"""
_PRUNE = f"""
DELETE FROM {_TABLE} WHERE written <= (SELECT written FROM {_TABLE} ORDER BY written DESC LIMIT 1 OFFSET ?)
"""


class DiskCache:
    """Keeps answers in the file at `path`, as JSON; removes the oldest beyond `max_items` when it is opened."""

    def __init__(self, path: Path, max_items: int) -> None:
        self.path = path
        self.lock = threading.RLock()
        """Held while the file is used."""
        self._max_items = max_items
        self._lost = self._closed = False
        self._file: sqlite3.Connection | None = None
        # Only this thread uses the file, so that a read sees every earlier write.
        self._thread = DaemonThreads(1, "ragguard-cache")
        disconnect_before_forks(self)

    async def read(self, keys: Sequence[bytes]) -> dict[bytes, Value]:
        """Returns what the file has of these keys."""
        found: dict[bytes, Value] = {}

        def read(file: sqlite3.Connection) -> None:
            for key in keys:
                for (value,) in file.execute(f"SELECT value FROM {_TABLE} WHERE key = ?", (key,)):
                    found[key] = _as_tuples(json.loads(value))

        if not self._lost and not self._closed:
            await asyncio.wrap_future(self._thread.submit(self._use, "read", read))
        return found

    def write(self, values: Values) -> None:
        """Queues answers, which the cache's thread writes soon; does nothing once the cache is closed."""

        def write(file: sqlite3.Connection) -> None:
            now = time.time_ns()
            rows = [(key, json.dumps(value).encode(), now) for key, value in values.items()]
            with file:
                file.executemany(f"INSERT OR REPLACE INTO {_TABLE} VALUES (?, ?, ?)", rows)

        if not self._lost and not self._closed:
            self._thread.submit(self._use, "written", write)

    async def close(self) -> None:
        """Writes what is left and closes the file."""
        self._closed = True
        await asyncio.wrap_future(self._thread.submit(self.disconnect))
        self._thread.shutdown(wait=False)

    def disconnect(self) -> None:
        """Closes the connection; the next use opens another one."""
        with self.lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def __del__(self) -> None:
        """Closes the file of a cache that nobody closed and nobody can reach any more."""
        if (file := getattr(self, "_file", None)) is not None:
            file.close()

    def _use(self, what: str, work: Callable[[sqlite3.Connection], None]) -> None:
        """Does some work with the file, or gives the file up; `what` says in the warning what could not be done."""
        with self.lock:
            try:
                if not self._lost:
                    work(self._file or self._open())
            except (sqlite3.Error, OSError, ValueError) as error:
                self._lost = True
                _log.warning(
                    "The answer cache %s cannot be %s (%s). Going on in memory only: after a restart, answers are "
                    "asked and paid for again. Delete the file, or give another path.",
                    self.path,
                    what,
                    error,
                )
                self.disconnect()

    def _open(self) -> sqlite3.Connection:
        # The garbage collector may close the connection on any thread.
        self._file = sqlite3.connect(self.path, timeout=5, check_same_thread=False)
        self._file.executescript(_SCHEMA)
        with self._file:
            self._file.execute(_PRUNE, (self._max_items,))
        return self._file


def _as_tuples(data: Any) -> Any:
    """Returns what JSON holds as it was written: its lists were tuples."""
    return tuple(map(_as_tuples, data)) if isinstance(data, list) else data
