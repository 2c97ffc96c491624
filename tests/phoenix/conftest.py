"""A real Phoenix on loopback, started once for the whole session and stopped with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from support.phoenix_env import PHOENIX


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def phoenix(tmp_path_factory):
    """The address of a running Phoenix."""
    if not PHOENIX.ready():
        pytest.skip("NO Phoenix HERE: run `make test-phoenix`")
    folder = tmp_path_factory.mktemp("phoenix")
    port, grpc_port = _free_port(), _free_port()
    environment = os.environ | {
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc_port),
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    log = (folder / "log").open("w")
    server = subprocess.Popen(
        [PHOENIX.python, Path(__file__).with_name("launcher.py")],
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                if httpx.get(f"{url}/healthz", timeout=2).is_success:
                    break
            except httpx.TransportError:
                pass
            alive = server.poll() is None and time.monotonic() < deadline
            assert alive, (folder / "log").read_text()[-3000:]
            time.sleep(0.2)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(20)
        log.close()
