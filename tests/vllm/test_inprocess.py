"""vLLM inside a process of its own, since it wants an environment of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.environments import VLLM
from support.vllm_server import SETTINGS, turn

ROOT = Path(__file__).parents[2]


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_contract_inside_vllms_own_environment():
    if not VLLM.ready():
        pytest.skip("no vLLM here: run `make test-vllm`")
    settings = {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))), **SETTINGS}
    suite = Path(__file__).with_name("inprocess_suite.py")
    command = [
        str(VLLM.python), "-m", "pytest", str(suite), "-q", "-p", "no:cacheprovider", "-W", "default",
        "-o", "timeout=0", "-o", "addopts=",
    ]  # fmt: skip
    with turn():
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert " passed" in done.stdout
