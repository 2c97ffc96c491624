"""A service under load for ten minutes: is memory flat, is everything scored once, does a hook stay quick?

    python benchmarks/soak.py [--seconds 600]

Threads capture runs without a pause beyond their pace; the engine answers from a hash and is away for a while
now and then, so that retries, failures and recovery are part of it. Writes soak.json.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.scripted_pipeline import ScriptedPipeline, ScriptedSettings

from benchmarks.machine import record
from benchmarks.options import parse, parser
from ragguard.capture.recorder import Recorder
from ragguard.errors import EngineUnreachable
from ragguard.records import Passage
from ragguard.runtime.circuit_breaker import RetrySchedule
from ragguard.scorers.settings import ScoringSettings
from ragguard.service.configuration import Configuration
from ragguard.service.service import in_each_process

THREADS = 4
RUNS_PER_SECOND = 25
"""The runs that each thread makes in a second; two steps of ten passages a run."""
AWAY_EVERY, AWAY_FOR = 30.0, 3.0


def resident_mib() -> float:
    """Returns the memory in use now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Forgetful(ScriptedPipeline):
    """Keeps no list of what it saw, which would be the leak."""

    async def results(self, run: Any, *, priority: int = 10) -> Any:
        self.seen.clear()
        return await super().results(run, priority=priority)


def capture(recorder: Recorder, name: int, until: float, waits: list[float]) -> None:
    """Captures runs until the given time, as one thread of the application; adds how long each hook took to `waits`."""
    from ragguard.capture.handle import RunHandle

    number = 0
    while time.monotonic() < until:
        began = time.monotonic()
        with RunHandle(recorder, f"question {name}-{number}?") as run:
            for step in range(2):
                found = [
                    Passage(f"passage {(number * 7 + n) % 5000} " + "word " * 80, f"p{n}") for n in range(10)
                ]
                before = time.perf_counter()
                run.retrieved(f"hop {step}", found)
                waits.append(time.perf_counter() - before)
            run.answered("an answer")
        number += 1
        del waits[:-5000]
        time.sleep(max(0.0, 1 / RUNS_PER_SECOND - (time.monotonic() - began)))


def soak(seconds: float, folder: str) -> dict[str, Any]:
    """Captures and scores for so many seconds; reads the memory of the process every second."""
    path, began = Path(folder) / "s.db", time.monotonic()

    def fault(run: Any) -> Exception | None:
        away = (time.monotonic() - began) % AWAY_EVERY > AWAY_EVERY - AWAY_FOR
        return EngineUnreachable("it is away for a while") if away else None

    pipeline = Forgetful(fault=fault)
    settings = Configuration(
        scoring=cast(ScoringSettings, ScriptedSettings(pipeline)),
        store=path,
        concurrency=16,
        retry=RetrySchedule(60, 0.2, 1.0),
    )
    service = in_each_process(settings).get()
    recorder = service.recorder
    waits: list[list[float]] = [[] for _ in range(THREADS)]
    until = began + seconds
    threads = [
        threading.Thread(target=capture, args=(recorder, name, until, waits[name])) for name in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    memory = []
    while time.monotonic() < until:
        time.sleep(1.0)
        memory.append(resident_mib())
    for thread in threads:
        thread.join()
    report = service.flush(120)
    service.close(10)
    with closing(sqlite3.connect(path)) as db:
        steps, scored, twice = (
            db.execute(query).fetchone()[0]
            for query in (
                "SELECT count(*) FROM steps",
                "SELECT count(*) FROM scores WHERE level = 'step'",
                "SELECT count(*) FROM (SELECT 1 FROM scores WHERE level = 'step' GROUP BY step_id HAVING count(*) > 1)",
            )
        )
    tenth = max(1, len(memory) // 10)
    everything = [wait for one in waits for wait in one]
    return {
        "seconds": seconds,
        "complete": bool(report),
        "runs": report.captured,
        "steps": steps,
        "steps_scored": scored,
        "steps_scored_twice": twice,
        "events_lost": report.lost,
        "memory_mib_second_tenth": round(statistics.median(memory[tenth : 2 * tenth] or memory), 1),
        "memory_mib_last_tenth": round(statistics.median(memory[-tenth:]), 1),
        "retrieved_us_median": round(statistics.median(everything) * 1e6, 1),
        "retrieved_us_p99": round(statistics.quantiles(everything, n=100)[98] * 1e6, 1),
        "store_mib": round(path.stat().st_size / 2**20, 1),
    }


def main() -> None:
    """Measures and tells."""
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=600.0)
    with tempfile.TemporaryDirectory() as folder:
        figures = soak(parse(options, seconds=3.0).seconds, folder)
    for name, value in figures.items():
        print(f"{name:>26}  {value}")
    print(record("soak", figures))


if __name__ == "__main__":
    main()
