"""A server that a test starts: it ends with the block, and also where the test's own process is killed."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import httpx

PATIENCE_S = 20
"""Seconds that a server and its children have to end before they are killed."""
_GUARDIAN = f"""
import os, signal, subprocess, sys, threading

server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)

def end_all():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    try:
        server.wait({PATIENCE_S})
    finally:
        os.killpg(0, signal.SIGKILL)

def wait_for_the_server():
    code = server.wait()
    os._exit(code if code >= 0 else 128 - code)

threading.Thread(target=wait_for_the_server, daemon=True).start()
sys.stdin.buffer.read()  # until the test, or its process, closes the pipe
end_all()
"""


@contextlib.contextmanager
def server_process(
    command: Sequence[object],
    *,
    environment: Mapping[str, str] | None = None,
    output: IO[Any] | int = subprocess.DEVNULL,
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a command in a process group of its own, with a guardian that ends the group when the block ends or this
    process does, however it ends; yields the guardian, which ends when the command ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", _GUARDIAN, *map(str, command)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        yield process
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait(PATIENCE_S + 10)


def free_port() -> int:
    """Returns a port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def healthy_server(
    command: Sequence[object], health: str, log: Path, *, environment: Mapping[str, str], patience_s: float
) -> Iterator[None]:
    """Runs a server that writes to `log`, and begins the block when the address `health` answers with success.

    Raises RuntimeError with the end of the log where that does not happen within `patience_s` seconds.
    """
    with (
        log.open("w") as output,
        server_process(command, environment=environment, output=output) as process,
    ):
        deadline = time.monotonic() + patience_s
        while not _answers(health):
            if process.poll() is not None or time.monotonic() > deadline:
                end = "\n".join(log.read_text(errors="replace").splitlines()[-40:])
                raise RuntimeError(f"{command[0]} did not answer at {health}:\n{end}")
            time.sleep(0.2)
        yield


def _answers(address: str) -> bool:
    try:
        return httpx.get(address, timeout=5).is_success
    except httpx.TransportError:
        return False
