"""The fork registry: every hook runs once at its time, whatever the others do, as long as its object lives."""

import gc
import subprocess
import sys

import pytest
from support.child import in_child

from ragguard.runtime.fork import at_fork

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


class Part:
    """Writes down which of its hooks ran."""

    def __init__(self, name: str, log: list[str], fault: type[BaseException] | None = None) -> None:
        self.name, self.log, self.fault = name, log, fault
        at_fork(before=self.before, in_parent=self.in_parent, in_child=self.in_child)

    def before(self) -> None:
        self._write("before")

    def in_parent(self) -> None:
        self._write("parent")

    def in_child(self) -> None:
        self._write("child")

    def _write(self, when: str) -> None:
        self.log.append(f"{when} {self.name}")
        if self.fault is not None:
            raise self.fault(self.name)


def test_hooks_run_in_order_and_before_the_fork_in_the_reverse_order():
    log: list[str] = []
    parts = [Part("a", log), Part("b", log)]

    def child() -> bool:
        return log == ["before b", "before a", "child a", "child b"]

    in_child(child)
    assert log == ["before b", "before a", "parent a", "parent b"]
    assert parts


def test_a_hook_that_raises_is_logged_and_stops_no_other(caplog):
    log: list[str] = []
    parts = [Part("a", log), Part("b", log, fault=LookupError), Part("c", log)]
    in_child(lambda: log[3:] == ["child a", "child b", "child c"])
    assert log[3:] == ["parent a", "parent b", "parent c"]
    assert "could not follow a fork" in caplog.text
    assert parts


def test_an_object_that_is_gone_is_forgotten():
    log: list[str] = []
    gone = Part("gone", log)
    del gone
    gc.collect()
    in_child(lambda: not log)
    assert not log


def test_functions_are_kept():
    log: list[str] = []
    at_fork(in_child=lambda: log.append("child"))
    in_child(lambda: log == ["child"])
    assert not log


def test_an_object_that_lives_to_the_end_of_the_process_leaves_no_word():
    program = (
        "from ragguard.runtime.fork import at_fork\n"
        "class Held:\n"
        "    def __init__(self): at_fork(in_child=self.begin_anew); self.itself = self\n"
        "    def begin_anew(self): pass\n"
        "held = Held()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
