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
