"""A real vLLM server on a machine without a GPU, started and stopped. `support.environments` has its environment."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from support.environments import VLLM
from support.server_process import free_port, healthy_server

SETTINGS = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
"""Variables of the environment of a vLLM in tests."""
_PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class VllmServer:
    """The address of a vLLM server and the model that it serves."""

    url: str
    model: str
    folder: Path | None = None
    """The checkpoint, where we started it ourselves."""


@contextlib.contextmanager
def serve(folder: Path, name: str, *arguments: str) -> Iterator[VllmServer]:
    """Serves a checkpoint. One server at a time on this machine; others wait for their turn."""
    with tempfile.TemporaryDirectory(prefix="ragguard-vllm-") as scratch, turn():
        port = free_port()
        log = Path(scratch) / "server.log"
        command = [
            str(VLLM.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder),
            "--served-model-name", name, "--host", "127.0.0.1", "--port", str(port),
            "--dtype", "float32", "--enforce-eager", "--scheduling-policy", "priority",
            # vLLM 0.32 for CPUs dies of a seeded request whose prompt is read in two pieces.
            "--no-enable-chunked-prefill", *arguments,
        ]  # fmt: skip
        health, environment = f"http://127.0.0.1:{port}/health", os.environ | SETTINGS
        with healthy_server(command, health, log, environment=environment, patience_s=_PATIENCE_S):
            yield VllmServer(f"http://127.0.0.1:{port}/v1", name, folder)


_lock = threading.Lock()
_held: list[TextIO] = []


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """Holds a lock for the block, so that one process at a time runs vLLM servers, which take some 3 GB each. A
    process may enter it several times."""
    with _lock:
        lock = (Path(tempfile.gettempdir()) / "ragguard-vllm.lock").open("w")
        if not _held:
            fcntl.flock(lock, fcntl.LOCK_EX)
        _held.append(lock)
    try:
        yield
    finally:
        with _lock:
            # The first one opened carries the lock: it goes last.
            _held.pop().close()
