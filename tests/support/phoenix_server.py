"""A real Phoenix on loopback, started and stopped. `support.environments` has its environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.environments import PHOENIX
from support.server_process import free_port, healthy_server

LAUNCHER = Path(__file__).parents[1] / "phoenix" / "launcher.py"


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
    url = f"http://127.0.0.1:{port}"
    command = [PHOENIX.python, LAUNCHER]
    with healthy_server(command, f"{url}/healthz", folder / "log", environment=environment, patience_s=120):
        yield url
