"""How fast a report of 10,000 runs is written, how fast a browser opens it, and how fast a folder of parts is read.

    python benchmarks/report.py

Of a folder of parts with 1.3 million scores of 100,000 runs: the seconds until they are grouped for a comparison (one
mean a run and metric, then one a question), and those of the whole command `ragguard report FOLDER`, which lists runs.
Writing is what a user waits for `ragguard report DB --html FILE`, start and reading included. Opening is from the
start of the navigation until the page has been painted with its list and its first run, by the browser's own clock,
in a headless Chromium; the median of five openings, each in a tab of its own.
"""

from __future__ import annotations

import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.browser import CHROMIUM, chromium

from benchmarks.machine import record
from benchmarks.options import parse, parser
from ragguard.records import Decision, Dropped, Passage, RetrievalStep, Run, Score, ScoredRun, Usage
from ragguard.storage.files.partfolder import PartCounts, PartFolder, totals_of
from ragguard.storage.sqlite.ledger import ScoringOutcome
from ragguard.storage.sqlite.store import Store

HOPS, PASSAGES = 2, 5
RUNS_A_PART = 1_000
TARGETS = {"write_s": 5.0, "open_s": 2.0, "parts_grouped_s": 20.0}
COMMAND = [sys.executable, "-c", "from ragguard.cli import main; main()", "report"]
WORDS = "belief passage hop model harbour ledger granite orchard signal meadow copper winter".split()


def scored(number: int, rng: random.Random) -> ScoredRun:
    """A run with two hops of five passages of about 300 characters from a corpus of 20,000."""

    def passage() -> Passage:
        place = rng.randrange(20_000)
        words = random.Random(place)
        return Passage(" ".join(words.choice(WORDS) for _ in range(45)), f"p{place}", 0.5)

    run = Run(
        f"run{number:06d}", f"Which {rng.choice(WORDS)} is number {number}?", ["gold"], "an answer",
        started_ns=10**18 + number * 10**9, ended_ns=10**18 + number * 10**9 + 10**8,
    )  # fmt: skip
    about: dict[str, Any] = {
        "engine": "a-model@1",
        "prompts": "default/1",
        "usage": Usage(1, 2, 300, 20, 0.01),
    }
    scores = [
        Score(name, rng.uniform(0, 1), "run", run.id, reference_source="gold", **about)
        for name in (
            "seper_closed_book",
            "delta_seper_total",
            "udcg_context",
            "coverage_total",
            "answer_correct",
        )
    ]
    for index in range(HOPS):
        found = [passage() for _ in range(PASSAGES)]
        step = RetrievalStep(f"{run.id}-{index}", run.id, index, index, "a query", found[1:], found, 1, 10**7)
        step.decision = Decision(
            found[1:], [Dropped(found[0], 1, "utility -0.80 < -0.20", -0.8)], "pruned", 20.0
        )
        run.steps.append(step)
        of = {"run_id": run.id, "step_id": step.id} | about
        scores += [
            Score(name, rng.uniform(-0.5, 0.5), "step", stderr=0.1, reference_source="gold", **of)
            for name in ("delta_seper", "delta_seper_alone", "seper", "udcg", "coverage", "delta_coverage")
        ]
        for place in range(1, PASSAGES + 1):
            scores += [
                Score(name, rng.uniform(-1, 1), "passage", position=place, **of)
                for name in ("p_abstain", "p_relevant", "utility")
            ]
            scores += [
                Score("answerability", rng.randrange(6), "passage", position=place, sub_question=sub, **of)
                for sub in range(2)
            ]
    return ScoredRun(run, scores)


def write_parts(folder: Path, parts: int) -> int:
    """Writes a folder of parts as `ragguard score --out` does, and returns how many scores it has: of each run one hop
    of four passages, with 13 scores."""
    rng, target = random.Random(0), PartFolder(folder)
    keys = [f"{part:08x}" for part in range(parts)]
    target.begin({}, 1, keys)
    for key in keys:
        runs = [_small_run(f"{key}-{number:06d}", rng) for number in range(RUNS_A_PART)]
        target.write(PartCounts(key=key, source="runs.jsonl", start=0, end=1, totals=totals_of(runs)), runs)
    return parts * RUNS_A_PART * 13


def _small_run(id: str, rng: random.Random) -> ScoredRun:
    run = Run(id, f"Which {rng.choice(WORDS)} is number {id}?", started_ns=10**18)
    found = [Passage(f"text {place}", f"p{place}") for place in range(4)]
    run.steps.append(RetrievalStep(f"{id}-0", id, query="a query", passages=found))
    of: dict[str, Any] = {"run_id": id, "step_id": f"{id}-0", "engine": "a-model@1", "prompts": "default/1"}
    scores = [
        Score(
            name, rng.uniform(-1, 1), "passage", passage_id=f"p{place}", position=place + 1,
            usage=Usage(1, 1, 300, 2, 0.01), **of,
        )
        for place in range(4)
        for name in ("p_abstain", "p_relevant", "utility")
    ]  # fmt: skip
    return ScoredRun(run, [*scores, Score("udcg", rng.uniform(0, 1), "step", **of)])


def measure_parts(folder: Path, parts: int, rounds: int) -> dict[str, Any]:
    """Returns how long a folder of parts takes to be read; the median of the rounds."""
    figures: dict[str, Any] = {"parts_scores": write_parts(folder, parts)}
    grouping = (  # as `ragguard compare` does, with each of its sides
        "import gc, sys; from ragguard.analysis.pairs import read_questions; gc.disable(); read_questions(sys.argv[1])"
    )
    commands = {
        "parts_start": [sys.executable, "-c", "import ragguard.analysis.pairs"],
        "parts_grouped": [sys.executable, "-c", grouping, str(folder)],
        "parts_listed": [*COMMAND, str(folder)],
    }
    for name, command in commands.items():
        taken, computing = [], []
        for _ in range(rounds):
            clock, spent = time.perf_counter(), processor_seconds()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            taken.append(time.perf_counter() - clock)
            computing.append(processor_seconds() - spent)
        figures[f"{name}_s"] = round(statistics.median(taken), 2)
        figures[f"{name}_processor_s"] = round(statistics.median(computing), 2)
    return figures


def processor_seconds() -> float:
    """Returns what the processes that have ended have computed."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def main() -> None:
    """Measures and writes `report.json`."""
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=10_000, help="runs of the page")
    options.add_argument("--parts", type=int, default=100, help="parts of 1,000 runs")
    options.add_argument("--rounds", type=int, default=3, help="how often each command runs")
    given = parse(options, runs=50, parts=1, rounds=1)
    with tempfile.TemporaryDirectory() as folder:
        rng = random.Random(0)
        store, page = Store(Path(folder) / "s.db"), Path(folder) / "report.html"
        figures: dict[str, Any] = {"targets": TARGETS, "runs": given.runs}
        for number in range(given.runs):
            item = scored(number, rng)
            figures["scores_per_run"] = len(item.scores)
            claim = store.submit(item.run, "settings")
            store.store_outcome(ScoringOutcome(item.run.id, "settings", claim.revision, item.scores))
        store.close()
        writing, computing = [], []
        for _ in range(given.rounds):
            clock, spent = time.perf_counter(), processor_seconds()
            subprocess.run([*COMMAND, str(Path(folder) / "s.db"), "--html", str(page)], check=True)
            writing.append(time.perf_counter() - clock)
            computing.append(processor_seconds() - spent)
        figures["page_mb"] = round(page.stat().st_size / 1e6, 1)
        figures["write_s"] = round(statistics.median(writing), 2)
        figures["write_processor_s"] = round(statistics.median(computing), 2)
        figures |= measure_parts(Path(folder) / "parts", given.parts, given.rounds)
        if CHROMIUM:
            with chromium() as browser:
                opened = [
                    float(browser.open(page.as_uri()).value("painted")) for _ in range(2 * given.rounds - 1)
                ]
                page_ = browser.open(page.as_uri())
                clock = time.perf_counter()
                page_.value(
                    "search.value = 'granite 77'; search.dispatchEvent(new Event('input')); runs.offsetHeight"
                )
                figures["search_s"] = round(time.perf_counter() - clock, 3)
                figures["open_s"] = round(statistics.median(opened) / 1e3, 2)
                figures["open_s_all"] = [round(each / 1e3, 2) for each in opened]
                figures["chromium"] = browser.call("Browser.getVersion")["product"]
    print(record("report", figures).read_text())


if __name__ == "__main__":
    main()
