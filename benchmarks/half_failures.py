"""Scoring in the background while a server fails half of all requests: the pace beside that of the same server when it
is well before and after, and how long the runs that waited take once it is well again.

A server answers each request after some milliseconds; for a while half of all requests, by chance, get a 500 or a 503.
Runs are added faster than they are scored. `--minutes`: how long it fails, 10 for a record.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from dataclasses import replace
from multiprocessing import Queue, get_context
from pathlib import Path
from typing import Any
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer, Reply, Request

from benchmarks.machine import record
from benchmarks.options import parse, parser
from benchmarks.slow_server import runs
from ragguard import RagGuard, Run
from ragguard.scorers.belief import Belief
from ragguard.scorers.scorer import Scorer

STATUSES = (500, 503)
WAITING = 60
"""How many runs wait to be scored at any time."""


class Flaky:
    """A fake model behind a server that answers after `latency` seconds, and fails half of all requests with the status
    that `GET /fail/STATUS` sets; 0: none."""

    def __init__(self, latency: float) -> None:
        self._model = FakeModel(face="vllm", context=100_000)
        self._latency, self._chance = latency, random.Random(7)
        self._status = self._requests = 0

    def handle(self, request: Request) -> Reply:
        """Answers a request, or fails it."""
        if request.path.startswith("/fail/"):
            self._status, asked, self._requests = int(request.path.rpartition("/")[2]), self._requests, 0
            return Reply(str(asked))
        self._requests += 1
        if self._status and self._chance.random() < 0.5:
            return Reply({"error": {"message": "try again"}}, self._status, wait_s=self._latency / 2)
        return replace(self._model.handle(request), wait_s=self._latency)


def serve(latency: float, address: Queue[Any], end: Queue[Any]) -> None:
    """Serves in a process of its own until something is in `end`."""

    async def until_the_end() -> None:
        async with MisbehavingServer(Flaky(latency).handle) as server:
            address.put(server.url)
            await asyncio.to_thread(end.get)

    asyncio.run(until_the_end())


def fail_with(url: str, status: int) -> int:
    """Sets the status of failures; returns how many requests came since the last time."""
    with urlopen(f"{url.removesuffix('/v1')}/fail/{status}", timeout=60) as reply:
        return int(reply.read())


class Feed:
    """Adds runs to a RagGuard, so that some always wait."""

    def __init__(self, rg: RagGuard) -> None:
        self._rg, self._added = rg, 0

    @property
    def scored(self) -> int:
        """How many runs are scored."""
        return self._rg.store.counts["runs_scored"]

    async def pending(self) -> int:
        """Returns how many runs wait."""
        return (await asyncio.to_thread(self._rg.store.left)).pending

    async def pace(self, seconds: float) -> float:
        """Returns how many runs are scored a second."""
        began, before = time.monotonic(), self.scored
        while time.monotonic() < began + seconds:
            missing = WAITING - await self.pending()
            if missing > WAITING // 3:
                await self._rg.add_runs(
                    [_numbered(run, self._added + at) for at, run in enumerate(runs(missing))]
                )
                self._added += missing
            await asyncio.sleep(0.2)
        return (self.scored - before) / (time.monotonic() - began)


def _numbered(run: Run, number: int) -> Run:
    """Returns a run whose questions no other run has."""
    question = f"Who runs firm {number}?"
    steps = [replace(step, id=f"{number} {step.id}", query=question) for step in run.steps]
    return replace(run, id=str(number), question=question, steps=steps)


async def measure(url: str, status: int, latency: float, well_s: float, failing_s: float) -> dict[str, Any]:
    """Returns the figures of one server."""
    scorers: list[str | Scorer] = [Belief(by="samples", credit=0), "utility"]
    with tempfile.TemporaryDirectory() as folder:
        rg = RagGuard(url, scorers=scorers, store=Path(folder, "s.db"), when="run", exit_timeout=0)
        feed = Feed(rg)
        for _ in range(60):  # the server is looked at, and the window grows
            if feed.scored >= 10:
                break
            await feed.pace(1.0)
        well = await feed.pace(well_s)
        fail_with(url, status)
        failing = await feed.pace(failing_s)
        asked = fail_with(url, 0)
        began, waited = time.monotonic(), await feed.pending()
        for _ in range(900):
            if await feed.pending() <= waited * 0.05:
                break
            await asyncio.sleep(0.1)
        took = time.monotonic() - began
        well = (
            well + await feed.pace(well_s)
        ) / 2  # before and after: other work of the machine comes and goes
        row = {
            "status": status, "latency, ms": 1000 * latency, "runs a second, well": round(well, 2),
            "runs a second, failing": round(failing, 2), "pace while it fails": round(failing / max(well, 1e-9), 3),
            "requests a second, failing": round(asked / failing_s, 1), "waited": waited,
            "seconds to 95 % of these": round(took, 2),
            "failed for good": rg.store.counts["runs_failed"],
        }  # fmt: skip
        await rg.aclose(1)
    print(row, flush=True)
    return row


def beside_server(status: int, latency: float, well_s: float, failing_s: float) -> dict[str, Any]:
    """Measures beside a server of its own."""
    context = get_context("spawn")
    address, end = context.Queue(), context.Queue()
    server = context.Process(target=serve, args=(latency, address, end), daemon=True)
    server.start()
    try:
        return asyncio.run(measure(address.get(timeout=60), status, latency, well_s, failing_s))
    finally:
        end.put(None)
        server.join(60)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--minutes", type=float, default=10.0)
    options.add_argument("--latency", type=float, action="append", help="seconds to an answer")
    given = parse(options, minutes=0.02, latency=[0.01, 0.02])
    failing_s = 60 * given.minutes
    rows = [
        beside_server(status, latency, min(60.0, failing_s), failing_s)
        for latency in given.latency or [0.01, 0.1]
        for status in STATUSES
    ]
    print(record("half_failures", {"minutes": given.minutes, "servers": rows}))


if __name__ == "__main__":
    main()
