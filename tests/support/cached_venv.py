"""Environments of their own for heavy real parts, made once and kept in the user's cache."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class UnavailableError(Exception):
    """The environment cannot be had here; the text says why."""


@dataclass(frozen=True)
class CachedVenv:
    """A virtual environment under the cache, complete once its stamp says what was wanted."""

    name: str
    packages: tuple[str, ...]
    check: str
    """A statement that must run in it."""
    fill: Callable[[CachedVenv], None] | None = None
    """Installs the packages, where that takes more than one step."""
    interpreter: Path = Path(sys.executable)
    """The Python that it is made of."""

    @property
    def home(self) -> Path:
        """The folder of the environment, which `install` makes."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cache / "ragguard" / f"venv-{self.name}"

    @property
    def python(self) -> Path:
        """The path of the environment's interpreter."""
        return self.home / "bin" / "python"

    def ready(self) -> bool:
        """Returns whether the environment exists, complete and with the wanted packages."""
        stamp = self.home / "ragguard-complete"
        return stamp.is_file() and set(stamp.read_text().splitlines()) == set(self.packages)

    def install(self) -> Path:
        """Returns the environment's interpreter; makes the environment first where it is missing, one process at a
        time."""
        self.home.parent.mkdir(parents=True, exist_ok=True)
        with self.home.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.ready():
                (self.home / "ragguard-complete").unlink(missing_ok=True)
                self._run(str(self.interpreter), "-m", "venv", str(self.home))
                if self.fill:
                    self.fill(self)
                else:
                    self.pip(*self.packages)
                self._run(str(self.python), "-c", self.check)
                (self.home / "ragguard-complete").write_text("\n".join(self.packages))
        return self.python

    def pip(self, *arguments: str) -> None:
        """Runs `pip install` in it."""
        self._run(
            str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments
        )

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
            raise UnavailableError(f"{' '.join(command[1:4])} … ended with {done.returncode}:\n{tail}")
