"""The trainer: what it says of itself (seeded, resumable, a log of its curve) on four steps of one short row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra hf is not installed")

STEPS = 4


def run(module: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"training.nano.{module}", *map(str, arguments)],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(out: Path, *more: object) -> None:
    small = ("--threads", 1, "--no-compile", "--rows", 2, "--length", 96, "--steps", STEPS, "--every", 1)
    run("train", "--out", out, *small, *more)


def trained(out: Path) -> dict[str, object]:
    return torch.load(out / "checkpoint.pt")


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_as_if_never_stopped(tmp_path: Path) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    train(whole)
    train(halves, "--stop", STEPS // 2)
    assert trained(halves)["step"] == STEPS // 2
    train(halves)
    one, two = trained(whole), trained(halves)
    assert one["step"] == two["step"] == STEPS
    assert all(torch.equal(one["model"][name], two["model"][name]) for name in one["model"])
    curves = [
        [json.loads(line) for line in (out / "curve.jsonl").read_text().splitlines()]
        for out in (whole, halves)
    ]
    assert [[line["step"] for line in curve] for curve in curves] == [[1, 2, 3, 4]] * 2
    assert [line["loss"] for line in curves[0]] == [line["loss"] for line in curves[1]]
    said = run("weights", halves / "checkpoint.pt", "--to", tmp_path / "weights.npz")
    assert said.startswith("1,516,160 parameters")
    with np.load(tmp_path / "weights.npz") as arrays:
        assert arrays["embed"].dtype == np.float16


class Code:
    """Runs something when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("program", ["train", "weights"])
def test_a_checkpoint_that_holds_code_is_refused(tmp_path, program):
    checkpoint, mark = tmp_path / "checkpoint.pt", tmp_path / "it ran"
    torch.save({"model": {}, "shape": Code(mark)}, checkpoint)
    # As the versions of torch did that load everything unless they are told not to.
    environment = {**os.environ, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "0", "OMP_NUM_THREADS": "1"}
    arguments = (
        ["--out", tmp_path, "--no-compile"]
        if program == "train"
        else [checkpoint, "--to", tmp_path / "w.npz"]
    )
    loads = (
        "import runpy, sys, torch; load = torch.load\n"
        "torch.load = lambda *a, **k: load(*a, **{'weights_only': False, **k})\n"
        f"sys.argv = sys.argv[1:]; runpy.run_module('training.nano.{program}', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", loads, program, *map(str, arguments)], cwd=Path(__file__).parents[3],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "weights_only" in done.stderr.lower() or "weights only" in done.stderr.lower(), done.stderr
    assert not mark.exists()
