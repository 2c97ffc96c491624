"""Servers that tests start end with the test, also where its process is killed."""

import os
import subprocess
import sys

import pytest
from support.polling import eventually
from support.program import command, environment
from support.server_process import server_process

SERVER = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
print(os.getpid(), child.pid, flush=True)
child.wait()
"""
HOLDER = """
import sys
from support.server_process import server_process
with server_process([sys.executable, "-c", sys.argv[1]], output=sys.stdout):
    sys.stdin.read()
"""


def lives(pid):
    """Returns whether a process runs: what is dead and not yet waited for does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_a_server_and_its_children_end_with_the_process_that_started_it(end):
    holder = subprocess.Popen(
        command(HOLDER, SERVER), env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    pids = [int(pid) for pid in holder.stdout.readline().split()]
    assert len(pids) == 2
    assert all(map(lives, pids))
    if end == "killed":
        holder.kill()
    holder.communicate()
    eventually(lambda: not any(map(lives, pids)), 60)


def test_a_server_that_ends_is_seen_to_end():
    with server_process(
        [sys.executable, "-c", "raise SystemExit(7)"], environment=dict(os.environ)
    ) as process:
        assert process.wait(60) == 7
