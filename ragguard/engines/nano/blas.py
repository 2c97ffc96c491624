"""Limits NumPy's own threads while nano computes.

OpenBLAS splits every small product over all cores and spins where a core is busy with something else: on
a machine with other work one batch took 43 s instead of 0.3 s. nano spreads whole chunks over
threads of its own instead. Where NumPy is built on another library nothing is done.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

from ragguard.runtime.fork import at_fork

_lock = threading.Lock()
_inside = 0
_before = 0


@contextmanager
def one_thread() -> Iterator[None]:
    """Makes each matrix product of the process use one thread while the block runs."""
    global _inside, _before
    controls = _controls()
    if controls is None:
        yield
        return
    get, put = controls
    with _lock:
        _inside += 1
        if _inside == 1:
            _before = get()
            put(1)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                put(_before)


def _begin_in_child() -> None:
    """Resets the count of threads inside the block, in a forked child: these threads do not exist there."""
    global _inside
    if _inside and (controls := _controls()) is not None:
        _, put = controls
        put(_before)
    _inside = 0
    _lock.release()


# A thread that is setting the number of threads may finish first: a fork must not copy the library's own held locks.
at_fork(before=_lock.acquire, in_parent=_lock.release, in_child=_begin_in_child)


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
