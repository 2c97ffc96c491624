"""vLLM inside a process of its own and in an actor of Ray, since each wants an environment of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.environments import VLLM, VLLM_RAY
from support.program import ROOT, environment
from support.vllm_server import SETTINGS, turn


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("home", "suite"), [(VLLM, "inprocess_suite.py"), (VLLM_RAY, "dead_core_suite.py")], ids=["alone", "ray"]
)
def test_suite_passes_inside_vllms_own_environment(home, suite):
    if not home.ready():
        pytest.skip("no such environment here: run `make test-vllm`")
    command = [
        str(home.python), "-m", "pytest", str(Path(__file__).with_name(suite)), "-q", "-p", "no:cacheprovider",
        "-W", "default", "-o", "timeout=0", "-o", "addopts=",
    ]  # fmt: skip
    with turn():
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**environment(), **SETTINGS},
            capture_output=True,
            text=True,
            timeout=1100,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert " passed" in done.stdout
