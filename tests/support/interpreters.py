"""The oldest and the newest Python of this machine that ragguard supports: run this file with `oldest` or `newest`.

Runs on any Python and imports nothing of the project.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

OLDEST_SUPPORTED = (3, 11)
_NAME = re.compile(r"python3\.\d+")
_VERSION = "import sys; print(*sys.version_info[:3], int(sys.version_info.releaselevel == 'final'))"


def folders() -> list[Path]:
    """The folders that hold interpreters: those of PATH, and those that pyenv and uv keep beside it."""
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv")
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or home / ".local/share/uv/python")
    path = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    return [*path, *sorted(pyenv.glob("versions/*/bin")), *sorted(uv.glob("*/bin"))]


def version(interpreter: Path) -> tuple[int, ...] | None:
    """The version of a released Python that starts and can make virtual environments, else None."""
    try:
        told = subprocess.run(
            [str(interpreter), "-c", f"import venv, ensurepip, sqlite3; {_VERSION}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if told.returncode:  # a shim of pyenv for a version that is not chosen
        return None
    *numbers, final = map(int, told.stdout.split())
    return tuple(numbers) if final else None


def interpreters(where: list[Path]) -> list[tuple[tuple[int, ...], Path]]:
    """The supported versions under these folders, from the oldest, each with its first interpreter there."""
    found: dict[tuple[int, ...], Path] = {}
    for folder in where:
        try:
            files = sorted(file for file in folder.iterdir() if _NAME.fullmatch(file.name))
        except OSError:
            continue
        for file in files:
            numbers = version(file)
            if numbers is not None and numbers[:2] >= OLDEST_SUPPORTED:
                found.setdefault(numbers, file)
    return sorted(found.items())


def oldest() -> Path:
    """The interpreter of the oldest supported version; of several patch releases, the latest."""
    every = interpreters(folders())
    return [path for numbers, path in every if numbers[:2] == every[0][0][:2]][-1]


def newest() -> Path:
    """The interpreter of the newest version."""
    return interpreters(folders())[-1][1]


if __name__ == "__main__":
    if sys.argv[1:] not in (["oldest"], ["newest"]):
        sys.exit("say oldest or newest")
    try:
        print(oldest() if sys.argv[1] == "oldest" else newest())
    except IndexError:
        sys.exit("ragguard needs Python 3.11 or newer, and none was found on PATH, under pyenv or under uv")
