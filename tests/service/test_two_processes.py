"""Two processes that score into one store: each run is scored by one of them, also if that one is killed."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import replace

import pytest
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer
from support.polling import aeventually
from support.program import environment

from ragguard.errors import StoreError
from ragguard.storage.files.runfile import write_runs
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.world import cases
from ragguard.world.cases import make_run

pytestmark = pytest.mark.slow

RUNS = 40


@pytest.fixture
async def server():
    model = FakeModel()
    async with MisbehavingServer(lambda request: replace(model.handle(request), wait_s=0.05)) as server:
        yield server


class Scoring:
    """A running `ragguard score`."""

    def __init__(self, folder, server, runs="runs.jsonl", store="s.db"):
        self.path = folder / store
        command = ["score", runs, "-e", server.url, "-s", store, "--scorers", "utility", "-c", "1"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ragguard", *command],
            cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def is_under_way(self):
        """True once some runs are scored."""
        with suppress(StoreError):  # it is empty at first
            return self.path.exists() and any(self.scored())

    def scored(self):
        """Returns whether each run of the store has scores by the model."""
        with closing(StoreReader(self.path)) as store:
            return [any(score.engine for score in run.scores) for run in store.scored_runs()]

    async def line(self):
        """Returns the first line that it says."""
        return await asyncio.to_thread(self.process.stderr.readline)

    async def said(self):
        """Returns what it says until its end, in one line."""
        said = " ".join((await asyncio.to_thread(self.process.communicate))[1].split())
        assert self.process.returncode == 0, said
        return said


@pytest.fixture
def folder(tmp_path):
    write_runs(map(make_run, cases(RUNS, seed=3)), tmp_path / "runs.jsonl")
    return tmp_path


def tokens_in(said):
    """Returns how many tokens a command says that it has read."""
    return int(re.search(r"([\d,]+) tokens read", said)[1].replace(",", ""))


def feeding(folder, pipe):
    """Writes the runs into a pipe, as they are read from it."""
    return subprocess.Popen(["cat", folder / "runs.jsonl"], stdout=pipe)


@pytest.fixture
async def begun(folder, server):
    """A command that is under way, and a second one that has found it."""
    os.mkfifo(folder / "pipe")
    second = Scoring(folder, server, "pipe")
    pipe = await asyncio.to_thread(open, folder / "pipe", "wb")  # until it has examined the server
    first = Scoring(folder, server)
    await aeventually(first.is_under_way, 60)
    server.gate.clear()
    with pipe, feeding(folder, pipe):
        pipe.close()
        said = await second.line()
        assert (
            f"being scored by another process (pid {first.process.pid}): left to it, and waited for" in said
        )
        server.gate.set()
        yield first, second
        for one in (first, second):
            one.process.kill()
            one.process.wait()
            one.process.stderr.close()


async def test_two_commands_at_once_ask_what_one_asks(folder, server, begun):
    both = [await one.said() for one in begun]
    assert sum(map(tokens_in, both)) == tokens_in(await Scoring(folder, server, store="alone.db").said())
    assert all(f"{RUNS} runs are in s.db" in said for said in both)


async def test_what_a_killed_command_had_to_score_is_scored_by_the_other_one(begun):
    first, second = begun
    first.process.kill()
    first.process.communicate()
    assert f"{RUNS} runs are in s.db" in await second.said()
    assert second.scored() == [True] * RUNS
