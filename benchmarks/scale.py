"""Measures what stands once in a job over parts, for a million and a hundred million runs: the plan, the folder, the
driver.

    python benchmarks/scale.py

Measures one part of each here (the plan, keys, writing, listing, counts, checking), takes
what Ray adds from `results/ray.json` (`make bench-ray`), and multiplies. docs/background/scale.md shows the table.
"""

from __future__ import annotations

import json
import pickle
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import RESULTS, record
from benchmarks.options import parse, parser
from ragguard.records import Passage, RetrievalStep, Run, Score, ScoredRun
from ragguard.scale import PartFolder, PartJob, ScoringSettings
from ragguard.scale.part import Part, find_runs, plan_parts
from ragguard.storage.files.partfolder import PartCounts, totals_of

RUNS_A_PART = 1_000
BYTES_A_RUN = 16 * 1024
SCORES_A_RUN = 13
"""Utility of a run of two steps with five passages each."""
JOBS = {"a million": 10**6, "a hundred million": 10**8}


def timed(work: Callable[[], object]) -> float:
    """Returns how many milliseconds the work took."""
    began = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began)


def planning(parts: int) -> dict[str, float]:
    """Milliseconds a part: cutting a file and reading it once, for the keys by which complete parts are known."""
    size = RUNS_A_PART * BYTES_A_RUN
    line = b'{"question": "' + b"x" * (BYTES_A_RUN - 17) + b'"}\n'
    with tempfile.TemporaryDirectory(prefix="ragguard-scale-") as path:
        (file := Path(path, "runs.jsonl")).write_bytes(line * (RUNS_A_PART * parts))
        found = find_runs([file])
        planned: list[Part] = []
        cut = timed(lambda: planned.extend(plan_parts(found, size)))
        keyed = timed(lambda: [part.key("0" * 32) for part in planned])
    return {"plan": cut / len(planned), "key": keyed / len(planned)}


def folder(parts: int) -> dict[str, float]:
    """Milliseconds a part: writing it, listing it, and reading its counts."""
    with tempfile.TemporaryDirectory(prefix="ragguard-scale-") as path:
        job = PartJob(scoring=ScoringSettings(), out=path)
        job.folder.begin(job.record, 1, [])
        keys = [f"{number:032x}" for number in range(parts)]
        runs = _runs()
        totals = totals_of(runs)

        def write(key: str) -> None:
            job.folder.write(PartCounts(key=key, source="/runs/0.jsonl", start=0, end=1, totals=totals), runs)

        return {
            "write": timed(lambda: deque(map(write, keys))) / parts,
            "list": timed(job.folder.finished) / parts,
            "counts": timed(lambda: [*map(PartFolder(path).counts, keys)]) / parts,
            "store_kib": sum(file.stat().st_size for file in Path(path, "parts").iterdir()) / parts / 1024,
        }


def _runs() -> list[ScoredRun]:
    """Returns the runs of one part, with passages that fill them."""
    made = []
    for place in range(RUNS_A_PART):
        run = Run(f"run-{place:08}", "who founded the firm that is based in Oslo?")
        found = [Passage(f"{place} {at} " + "x" * (BYTES_A_RUN // 10), f"p{at}") for at in range(10)]
        run.steps = [
            RetrievalStep(f"s{step}", run.id, step, step, passages=found[step::2], candidates=found[step::2])
            for step in range(2)
        ]
        scores = [
            Score("utility", place / 7 + at, "passage", run.id, "s0", f"p{at}", at + 1, engine="model/first_token",
                  prompts="default/1", scorer="utility", version="1")
            for at in range(SCORES_A_RUN)
        ]  # fmt: skip
        made.append(ScoredRun(run, scores))
    return made


def _object_bytes() -> int:
    """Returns the bytes of a part's description, as Ray takes it."""
    part = Part(source="/runs/0001.jsonl", start=0, end=1, content="0" * 32)
    return len(pickle.dumps(part))


def job(runs: int, one: dict[str, float], ray: dict[str, float]) -> dict[str, Any]:
    """Returns what a job takes, from what one part takes."""
    parts = runs // RUNS_A_PART
    return {
        "parts": parts,
        "plan_and_keys_s": parts * (one["plan"] + one["key"]) / 1000,
        "listing_s": parts * one["list"] / 1000,
        "counts_when_resumed_s": parts * one["counts"] / 1000,
        "stores_gib": parts * one["store_kib"] / 2**20,
        "driver_cpu_s": parts * ray["driver_cpu_ms"] / 1000,
        "driver_mib": ray["driver_mib"] + parts * ray["driver_kib"] / 1024,
        "object_store_mib": parts * ray["object_bytes"] / 2**20,
    }


def main() -> None:
    """Measures, multiplies, prints and records."""
    options = parser(__doc__)
    options.add_argument("--parts", type=int, default=60, help="parts that are written to a folder")
    parts = parse(options, parts=3).parts
    one = planning(max(2, parts // 7)) | folder(parts)
    memory = json.loads((RESULTS / "ray.json").read_text())["memory"]
    few, many = memory["few"], memory["many"]
    more = many["parts"] - few["parts"]
    ray = {
        "driver_mib": few["driver_mib"],
        "driver_kib": max(0.0, many["driver_mib"] - few["driver_mib"]) * 1024 / more,
        "driver_cpu_ms": 1000 * (many["driver_cpu_s"] - few["driver_cpu_s"]) / more,
        "object_bytes": _object_bytes(),
    }
    figures = {
        "assumed": {"runs_a_part": RUNS_A_PART, "bytes_a_run": BYTES_A_RUN, "scores_a_run": SCORES_A_RUN},
        "ms_a_part": one,
        "ray_a_part": ray,
        "jobs": {name: job(runs, one, ray) for name, runs in JOBS.items()},
    }
    print(record("scale", figures).read_text())


if __name__ == "__main__":
    main()
