"""Faults below SQLite: a preloaded library makes the n-th write, sync or read of a store's files fail."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.program import environment

KINDS = ("write", "sync", "read", "name", "grow", "memory")
"""What fails: `name` is a rename or a removal, `grow` a file's allocation, `memory` what SQLite allocates."""
MODES = ("fail", "hang", "kill")
MARK = "faulty"
"""Files are touched whose path holds this."""
FOR_EVER = -1


def can_inject() -> bool:
    """Whether this machine can build and preload the library, and SQLite is a library of its own."""
    return sys.platform == "linux" and shutil.which("gcc") is not None


def build(folder: Path) -> Path:
    """Compiles the library."""
    library = folder / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True, timeout=60
    )
    return library


def run(library: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs `programs.py` with the library preloaded."""
    return subprocess.run(
        [sys.executable, str(Path(__file__).with_name("programs.py")), *map(str, arguments)],
        env={**environment(), "LD_PRELOAD": str(library), "FAULTS_IN": MARK},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


class Injection:
    """The library, in the process that it is preloaded into."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.fault_count.restype = ctypes.c_long
        self._library.fault_arm.argtypes = (ctypes.c_int, ctypes.c_long, ctypes.c_long, ctypes.c_int)

    @contextmanager
    def armed(self, kind: str, first: int, times: int, mode: str = "fail") -> Iterator[None]:
        """The `first`-th call of a kind, and the next ones up to `times`, go wrong while the block runs."""
        self._library.fault_arm(KINDS.index(kind), first, times, MODES.index(mode))
        try:
            yield
        finally:
            self._library.fault_disarm()

    def count(self, kind: str) -> int:
        """How many calls there were since the block began."""
        return int(self._library.fault_count(KINDS.index(kind)))

    @property
    def sees_sqlite(self) -> bool:
        """Whether SQLite is a library of its own, so that its allocations are known."""
        with self.armed("memory", 1 << 60, 1):
            return bool(self._library.fault_sees_sqlite())
