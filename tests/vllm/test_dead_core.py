"""vLLM in an actor of Ray, in processes of their own, since they want an environment of their own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.environments import VLLM_RAY
from support.program import environment
from support.vllm_server import SETTINGS, turn


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_core_of_vllm_is_killed_in_its_actor():
    if not VLLM_RAY.ready():
        pytest.skip("no vLLM with Ray here: run `make test-vllm`")
    suite = Path(__file__).with_name("dead_core_suite.py")
    command = [
        str(VLLM_RAY.python), "-m", "pytest", str(suite), "-q", "-p", "no:cacheprovider", "-W", "default",
        "-o", "timeout=0", "-o", "addopts=",
    ]  # fmt: skip
    with turn():
        done = subprocess.run(
            command,
            env={**os.environ, **environment(), **SETTINGS},
            capture_output=True,
            text=True,
            timeout=1100,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert " passed" in done.stdout
