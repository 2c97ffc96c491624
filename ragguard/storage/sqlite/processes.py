"""Tells whether another process lives, by its number and its start where it runs on this machine."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """The identity of a process, so that another on the same machine can tell whether it lives."""

    owner: str
    machine: str
    pid: int
    born: str

    def has_ended(self, *, at_the_latest: bool) -> bool:
        """Returns whether the process has ended. On the same machine the process table tells at once, whatever the
        clock; elsewhere only the end of its lease does, which is given."""
        if self.machine != _machine() or (found := _born(self.pid)) == "":
            return at_the_latest
        return found != self.born


def this_process(owner: str) -> Process:
    """Returns the identity of this process."""
    return Process(owner, _machine(), os.getpid(), _born(os.getpid()) or "")


@cache
def _machine() -> str:
    """Returns the names of the machine, its boot and the process namespace, in which a process id is unique."""
    parts = [socket.gethostname(), "", ""]
    with suppress(OSError):  # no Linux
        parts[1] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        parts[2] = os.readlink("/proc/self/ns/pid")
    return "/".join(parts)


def _born(pid: int) -> str | None:
    """Returns the start of a process, in the system's own unit: '' where that cannot be read, None where there is no
    such process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return ""  # it is somebody else's
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else fields[19]
