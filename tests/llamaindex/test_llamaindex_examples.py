"""The examples run as a user runs them, offline, and print their hops."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "hops"),
    [
        ("llamaindex_drop_in", ["hop 1", "hop 1", "hop 1"]),
        ("llamaindex_guard", ["hop 1", "hop 1", "hop 1"]),
        ("llamaindex_agent", ["hop 1", "hop 2"]),
    ],
)
def test_an_example_prints_its_hops(name, hops, tmp_path):
    path = os.pathsep.join((str(ROOT), str(ROOT / "integrations")))
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert [line.split(":")[0] for line in done.stdout.splitlines() if line.startswith("hop ")] == hops
    for word in ("ΔSePer", "±", "UDCG", "coverage", "passage", "utility"):
        assert word in done.stdout
    assert list(tmp_path.iterdir()) == []
