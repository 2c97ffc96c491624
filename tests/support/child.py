"""Runs a function in a forked child, whose failure is the test's."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable


def in_child(work: Callable[[], object]) -> None:
    """Runs `work` in a fork of this process; fails where it raises or returns False."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 1 if work() is False else 0
        except BaseException:  # noqa: BLE001 - the child must not go on as a second test run
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 0, f"the child process failed (exit code {code}; below zero: a signal)"
