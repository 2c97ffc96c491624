"""A real Phoenix on loopback, started and stopped. `support.environments` has its environment."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from support.environments import PHOENIX
from support.server_process import server_process

LAUNCHER = Path(__file__).parents[1] / "phoenix" / "launcher.py"


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """A Phoenix that keeps its data in `folder`, and its address; stopped with the block."""
    port = free_port()
    environment = os.environ | {
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    with (
        (folder / "log").open("w") as log,
        server_process([PHOENIX.python, LAUNCHER], environment=environment, output=log) as server,
    ):
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 120
        while not _healthy(url):
            alive = server.poll() is None and time.monotonic() < deadline
            assert alive, (folder / "log").read_text()[-3000:]
            time.sleep(0.2)
        yield url


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=2).is_success
    except httpx.TransportError:
        return False
