"""Measures what stands once in a job over parts, for a million and a hundred million runs: the plan, the folder, the
driver.

    python benchmarks/scale.py

Measures one part of each here (the plan, keys, writing, listing, counts, the search for ids that stand twice), takes
what Ray adds from `results/ray.json` (`make bench-ray`), and multiplies. docs/how-to/scale.md shows the table.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import RESULTS, record
from ragguard.parts import Part, PartFolder, PartJob, ScoringSettings, find_runs, plan_parts
from ragguard.records import Run, Score, ScoredRun
from ragguard.storage.files.parttables import PartCounts, PartRows, Table

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
    """Milliseconds a part: writing it, listing it, reading its counts, checking its files, reading its run ids."""
    with tempfile.TemporaryDirectory(prefix="ragguard-scale-") as path:
        job = PartJob(scoring=ScoringSettings(), out=path)
        job.folder.begin({"settings": job.record, "part_bytes": 1})
        keys = [f"{number:032x}" for number in range(parts)]
        tables = _tables()

        def write(key: str) -> None:
            counts = PartCounts(
                key=key, source="/runs/0.jsonl", kind="lines", start=0, end=1, bytes=1, runs=RUNS_A_PART,
                scores=RUNS_A_PART * SCORES_A_RUN,
            )  # fmt: skip
            job.folder.write(counts, tables)

        return {
            "write": timed(lambda: [write(key) for key in keys]) / parts,
            "list": timed(job.folder.finished) / parts,
            "counts": timed(lambda: list(PartFolder(path).counts(keys))) / parts,
            "check": timed(lambda: job.folder.check(job.folder.counts(keys))) / parts,
            "ids": timed(lambda: list(job.folder.tables(job.folder.counts(keys), "runs"))) / parts,
            "score_kib": sum(file.stat().st_size for file in Path(path, "scores").iterdir()) / parts / 1024,
        }


def _tables() -> dict[Table, Any]:
    import pyarrow
    import pyarrow.parquet

    rows = PartRows()
    for place in range(RUNS_A_PART):
        run = Run(f"run-{place:08}", "who founded the firm that is based in Oslo?")
        made = [
            Score("utility", place / 7 + at, "passage", run.id, "s", f"p{at}", at, engine="model/first_token",
                  prompts="default/1", scorer="utility", version="1")
            for at in range(SCORES_A_RUN)
        ]  # fmt: skip
        rows.add(place * BYTES_A_RUN, ScoredRun(run, made, []))
    return rows.tables(pyarrow)


def _object_bytes() -> int:
    """Returns the bytes of what Ray keeps of a part in shared memory: a table with its description."""
    import pyarrow

    part = Part(source="s3://bucket/runs/0001.jsonl", kind="lines", start=0, end=1, bytes=1, content="0" * 32)
    sink = pyarrow.BufferOutputStream()
    table = pyarrow.table({"part": [json.dumps(asdict(part))]})
    with pyarrow.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return int(sink.getvalue().size)


def job(runs: int, one: dict[str, float], ray: dict[str, float]) -> dict[str, Any]:
    """Returns what a job takes, from what one part takes."""
    parts = runs // RUNS_A_PART
    return {
        "parts": parts,
        "plan_and_keys_s": parts * (one["plan"] + one["key"]) / 1000,
        "listing_s": parts * one["list"] / 1000,
        "counts_and_check_when_resumed_s": parts * (one["counts"] + one["check"]) / 1000,
        "ids_s": parts * one["ids"] / 1000,
        "scores_gib": parts * one["score_kib"] / 2**20,
        "driver_cpu_s": parts * ray["driver_cpu_ms"] / 1000,
        "driver_mib": ray["driver_mib"] + parts * ray["driver_kib"] / 1024,
        "object_store_mib": parts * ray["object_bytes"] / 2**20,
    }


def main() -> None:
    """Measures, multiplies, prints and records."""
    one = planning(8) | folder(60)
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
