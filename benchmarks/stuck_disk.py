"""How long hooks take while the disk is stuck, on an event loop and on a thread, and what is lost.

Another process holds the store's lock (BEGIN EXCLUSIVE) for 25 seconds. Before, meanwhile and afterwards a program
captures runs at a fixed rate; each hook's own time is taken, and how late the event loop wakes. Each case is a process
of its own.

    python benchmarks/stuck_disk.py [SECONDS]
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import record
from benchmarks.options import is_quick, parse, parser
from ragguard import Passage, RagGuard

RATE = 50
"""Runs a second; a run is a start, two retrievals of 20 passages of 2,000 characters, and an end."""
QUIET = 0.3 if is_quick() else 3.0
"""Seconds before the lock and after it."""
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "loop, no lock": ("loop", {}),
    "loop": ("loop", {}),
    "loop, full": ("loop", {"durability": "full"}),
    "loop, 8 MiB": ("loop", {"queue_bytes": 8 * 2**20}),
    "loop, 8 MiB, block(5)": ("loop", {"queue_bytes": 8 * 2**20, "on_overflow": "block(5)"}),
    "thread, no lock": ("thread", {}),
    "thread": ("thread", {}),
    "thread, 8 MiB, block(60)": ("thread", {"queue_bytes": 8 * 2**20, "on_overflow": "block(60)"}),
}
"""The places where the hooks are called, and the settings. Without a lock: what the machine itself costs."""
CALLS: dict[str, Callable[[RagGuard], object]] = {
    "flush(1)": lambda rg: rg.flush(1),
    "scores()": lambda rg: rg.scores("none"),
}


def passages(number: int) -> list[Passage]:
    """Texts that no other run has."""
    return [Passage(f"{number} {place} " + "x" * 1990) for place in range(20)]


class Taken:
    """Times of hooks in microseconds, without the garbage collections that fall into them: those are the process's."""

    def __init__(self) -> None:
        self.hooks: list[float] = []
        self.late: list[float] = []
        self._thread = threading.get_ident()
        self._collecting = self._collected = self.longest_collection = 0.0
        gc.callbacks.append(self._collect)

    def _collect(self, phase: str, _: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collecting = time.perf_counter()
        else:
            took = time.perf_counter() - self._collecting
            self._collected += took
            self.longest_collection = max(self.longest_collection, took)

    def timed(self, hook: Callable[..., object], *arguments: object) -> None:
        """Calls a hook and takes its time."""
        collected, began = self._collected, time.perf_counter()
        hook(*arguments)
        self.hooks.append((time.perf_counter() - began - (self._collected - collected)) * 1e6)


def one_run(rg: RagGuard, number: int, taken: Taken) -> None:
    """A run whose hooks do not wait for anything."""
    run = rg.run(f"question {number}")
    found = [passages(2 * number), passages(2 * number + 1)]
    taken.timed(run.__enter__)
    for hop in range(2):
        taken.timed(run.retrieved, "who?", found[hop])
    taken.timed(run.__exit__, None, None, None)


async def on_a_loop(rg: RagGuard, seconds: float, taken: Taken) -> int:
    """Captures at the fixed rate on an event loop, and measures how late the loop wakes up."""
    began, number = time.perf_counter(), 0
    waiting: set[asyncio.Task[None]] = set()
    while (now := time.perf_counter() - began) < seconds:
        if now * RATE < number:
            due = time.perf_counter() + 0.001
            await asyncio.sleep(0.001)
            taken.late.append((time.perf_counter() - due) * 1e6)
            continue

        async def run(number: int = number) -> None:
            async with rg.run(f"question {number}") as handle:
                for hop in range(2):
                    taken.timed(handle.retrieved, "who?", passages(2 * number + hop))

        task = asyncio.ensure_future(run())
        waiting.add(task)
        task.add_done_callback(waiting.discard)
        number += 1
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    return number


def on_a_thread(rg: RagGuard, seconds: float, taken: Taken) -> int:
    """Captures at the rate, as far as the hooks allow it."""
    began, number = time.perf_counter(), 0
    while (now := time.perf_counter() - began) < seconds:
        if now * RATE < number:
            time.sleep(0.001)
            continue
        one_run(rg, number, taken)
        number += 1
    return number


def worker(case: str, path: str, seconds: float) -> None:
    """Runs one case and prints its figures as JSON."""
    where, settings = CASES[case]
    taken = Taken()
    rg = RagGuard("nano", scorers=(), store=path, **settings)
    with rg.run("warm") as run:
        run.retrieved("who?", passages(-1))
    rg.flush(30)
    print("ready", flush=True)
    total = seconds + 2 * QUIET
    calls: dict[str, float] = {}

    def ask() -> None:
        time.sleep(QUIET + min(2.0, seconds / 2))  # while the writer still waits for the lock
        for name, call in CALLS.items():
            began = time.perf_counter()
            call(rg)
            calls[name] = time.perf_counter() - began

    asking = threading.Thread(target=ask)
    asking.start()
    number = asyncio.run(on_a_loop(rg, total, taken)) if where == "loop" else on_a_thread(rg, total, taken)
    asking.join()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report = rg.flush(120)
    rg.close(30)
    hooks, late = sorted(taken.hooks), sorted(taken.late) or [0.0]
    counts = rg.store.counts
    with sqlite3.connect(path) as db:
        stored = db.execute("SELECT count(*) FROM steps").fetchone()[0] - 1
    print(json.dumps({
        "runs": number, "steps": 2 * number, "stored": stored, "events lost": counts["events_lost"],
        "unconfirmed": counts["events_unconfirmed"],
        "true": bool(report), "peak MiB": round(peak),
        "hook µs": {name: round(hooks[min(len(hooks) - 1, int(len(hooks) * share))], 1)
                    for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0))},
        "loop late ms, max": round(late[-1] / 1000, 1),
        "garbage collection ms, max": round(taken.longest_collection * 1000, 1),
        "calls s": {name: round(took, 2) for name, took in calls.items()},
    }))  # fmt: skip


def measure(case: str, seconds: float) -> dict[str, object]:
    """Runs one case beside a lock."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        command = [sys.executable, __file__, "--case", case, "--path", str(path), str(seconds)]
        command += ["--quick"] * is_quick()
        program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        time.sleep(QUIET)
        lock = sqlite3.connect(path, isolation_level=None, timeout=30)
        if "no lock" not in case:
            lock.execute("BEGIN EXCLUSIVE")
        time.sleep(seconds)
        if lock.in_transaction:
            lock.execute("COMMIT")
        lock.close()
        out, _ = program.communicate()
        found: dict[str, object] = json.loads(out.splitlines()[-1])
        return found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("seconds", type=float, nargs="?", default=25.0)
    options.add_argument("--case")
    options.add_argument("--path")
    arguments = parse(options, seconds=0.1)
    if arguments.case:
        worker(arguments.case, arguments.path, arguments.seconds)
        return
    results = {}
    for case in CASES:
        results[case] = measure(case, arguments.seconds)
        print(case, json.dumps(results[case], ensure_ascii=False), flush=True)
    record("stuck_disk", {"seconds": arguments.seconds, "runs a second": RATE, "cases": results})


if __name__ == "__main__":
    main()
