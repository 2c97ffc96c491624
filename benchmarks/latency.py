"""Measures what a user would notice without a model in it: the import, a RagGuard, the way of an event to the disk, a
search.

    python benchmarks/latency.py

Each figure is the median of its rounds, beside the time that it should stay within.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import record
from benchmarks.options import parse, parser
from ragguard import Passage, RagGuard, world
from ragguard.analysis.page import write_html
from ragguard.records import ScoredRun
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.storage.sqlite.store import Store

TARGETS_MS = {
    "import ragguard": 60.0,
    "import and RagGuard('nano')": 300.0,
    "a hook of a step": 0.1,
    "an event to the disk": 50.0,
    "a search of 10,000 passages": 50.0,
    "1,000 runs as a page": 1000.0,
}
IMPORT = "import time; began = time.perf_counter(); {}; print(time.perf_counter() - began)"


def timed(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def started(code: str) -> float:
    """Seconds that the code takes in a Python of its own, without the start of that."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT.format(code)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def captures(folder: Path, steps: int) -> tuple[list[float], list[float]]:
    """Seconds of each hook, and from each hook until another reader of the file sees the step."""
    passages = [Passage("Ada Berg founded Norvik Mills. " * 60, str(number)) for number in range(20)]
    hooks, to_disk = [], []
    with RagGuard("nano", scorers=(), store=folder / "s.db") as rg, rg.run("who founded it?") as run:
        run.retrieved("warm up", passages)
        rg.flush(timeout=10)  # the writer has made the file
        reader = StoreReader(folder / "s.db")
        while reader.run(run.id) is None:
            time.sleep(0.001)
        for count in range(2, steps):
            began = time.perf_counter()
            run.retrieved(f"query {count}", passages)
            hooks.append(time.perf_counter() - began)
            while (found := reader.run(run.id)) is None or len(found.steps) < count:
                time.sleep(0.001)
            to_disk.append(time.perf_counter() - began)
        reader.close()
    return hooks, to_disk


def page(folder: Path, number: int) -> float:
    """Seconds to write so many runs of the world as a page."""
    store = Store(folder / "page.db")
    runs = [replace(world.make_run(case), id=f"{at}") for at, case in enumerate(world.cases(number, seed=3))]
    store.add_scored(map(ScoredRun, runs))
    took = timed(lambda: write_html(store.overviews(), folder / "report.html"))
    store.close()
    return took


def measure(folder: Path, rounds: int, runs: int) -> dict[str, list[float]]:
    """Returns the seconds of each round, by name."""
    search, cases = world.retriever(5), world.cases(11 * rounds, seed=9)
    search("warm up")
    hooks, to_disk = captures(folder, 2 + 7 * rounds)
    return {
        "import ragguard": [started("import ragguard") for _ in range(rounds)],
        "import and RagGuard('nano')": [
            started("import ragguard; ragguard.RagGuard('nano', store=None)") for _ in range(rounds)
        ],
        "a hook of a step": hooks,
        "an event to the disk": to_disk,
        "a search of 10,000 passages": [timed(partial(search, case.question)) for case in cases],
        "1,000 runs as a page": [page(folder, runs)],
    }


def main() -> None:
    """Prints and records the medians."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--runs", type=int, default=1000, help="runs of the page")
    given = parse(options, rounds=1, runs=20)
    with tempfile.TemporaryDirectory() as folder:
        seconds = measure(Path(folder), given.rounds, given.runs)
    found = {name: statistics.median(rounds) * 1e3 for name, rounds in seconds.items()}
    for name, milliseconds in found.items():
        missed = "" if milliseconds <= TARGETS_MS[name] else "   MISSED"
        print(f"{name:30} {milliseconds:10.3f} ms   (at most {TARGETS_MS[name]:g}){missed}")
    record("latency", {"targets_ms": TARGETS_MS, "milliseconds": found})


if __name__ == "__main__":
    main()
