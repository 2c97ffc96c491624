"""An actor of Ray whose vLLM loses its core. Run by `test_inprocess.py` with the Python that has both."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from support.parts import scores_in
from support.polling import eventually
from support.program import command, environment
from support.ray_cluster import ray_cluster

from ragguard.engines.nano.nano_engine import write_checkpoint
from ragguard.storage.files.partfolder import PartFolder
from ragguard.storage.files.runfile import write_runs
from tests.on_ray.conftest import made

RUNS = 300
PATIENCE_S = 400.0
KEY = ["run_id", "step_id", "position", "name", "stage"]
SETTINGS = {"dtype": "float32", "enforce_eager": True, "enable_chunked_prefill": False}


def cores() -> list[int]:
    """Returns the processes of vLLM's cores whose parents are actors that score parts."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if b"EngineCore" in (folder / "cmdline").read_bytes() and b"PartActor" in (
                Path("/proc", parent, "cmdline").read_bytes()
            ):
                found.append(int(folder.name))
        except OSError:  # it has ended
            continue
    return found


def test_a_core_that_is_killed_costs_no_score(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "nano")
    write_runs(made(RUNS), tmp_path / "runs.jsonl")
    out = tmp_path / "out"
    folder = PartFolder(out)
    with ray_cluster() as cluster:
        words = (
            "score", tmp_path / "runs.jsonl", "--scorers", "utility", "--on", "ray:1", "--gpus", "0",
            "--engine", f"vllm:{tmp_path / 'nano'}",
            "--engine-args", json.dumps(SETTINGS), "--out", out,
        )  # fmt: skip
        job = subprocess.Popen(
            command("from ragguard.cli import main; main()", *words), stderr=subprocess.PIPE, text=True,
            env=environment() | {"RAY_ADDRESS": cluster.address},
        )  # fmt: skip
        try:
            eventually(lambda: job.poll() is not None or len(folder.finished()) >= 2, PATIENCE_S)
            assert job.poll() is None, job.communicate()
            (core,) = cores()
            os.kill(core, signal.SIGKILL)
            complete = set(folder.finished())
            _, told = job.communicate(timeout=PATIENCE_S)
        finally:
            job.kill()
            job.wait()
        eventually(lambda: not cores(), 60)
    counts = [*map(folder.counts, folder.finished())]
    print(told)
    assert job.returncode == 0, told
    assert len(complete) < len(counts)
    assert sum(part.totals.runs for part in counts) == RUNS
    assert not any(part.totals.failures for part in counts)
    scores = [tuple(getattr(score, name) for name in KEY) for score in scores_in(folder)]
    assert {run_id for run_id, *_ in scores} == {run.id for run in made(RUNS)}
    assert len({*scores}) == len(scores)  # none stands twice
    assert "processes were lost" not in told
