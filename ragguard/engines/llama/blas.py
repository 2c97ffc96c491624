"""Limits NumPy's own threads while nano computes.

OpenBLAS splits every small product over all cores and spins where a core is busy with something else: on
a machine with other work one batch took 43 s instead of 0.3 s. nano spreads whole chunks over
threads of its own instead. Where NumPy is built on another library nothing is done. A process that is forked while nano
computes keeps one thread.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

from ragguard.runtime.per_process import PerProcess


class _Use:
    """How many blocks of this process keep the library at one thread, and its number of threads before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = self.before = 0


_use = PerProcess(_Use)


@contextmanager
def one_thread() -> Iterator[None]:
    """Makes each matrix product of the process use one thread while the block runs."""
    controls = _controls()
    if controls is None:
        yield
        return
    get, put = controls
    use = _use.get()
    with use.lock:
        use.inside += 1
        if use.inside == 1:
            use.before = get()
            put(1)
    try:
        yield
    finally:
        with use.lock:
            use.inside -= 1
            if use.inside == 0:
                put(use.before)


@cache
def _controls() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """Returns the functions that get and set the number of threads of NumPy's OpenBLAS; None where there is none."""
    home = Path(np.__file__).parent
    for folder in (home.parent / "numpy.libs", home / ".dylibs", home / ".libs"):
        for path in sorted(folder.glob("*openblas*")):
            try:
                library = ctypes.CDLL(str(path))
            except OSError:
                continue
            for name in (
                "scipy_openblas_{}_num_threads64_",
                "scipy_openblas_{}_num_threads",
                "openblas_{}_num_threads",
            ):
                try:
                    get, put = library[name.format("get")], library[name.format("set")]
                except AttributeError:
                    continue
                get.restype, put.argtypes, put.restype = ctypes.c_int, [ctypes.c_int], None
                return get, put
    return None
