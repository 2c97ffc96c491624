"""`ragguard watch` beside an application that runs: lines appear, a store may go and come, Ctrl-C ends it."""

import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.polling import eventually
from typer.testing import CliRunner

from ragguard import Passage, RagGuard
from ragguard.cli.app import app

QUESTION = "Where was Hugo Rosquist born?"


def capture(store, question=QUESTION):
    with RagGuard(engine="nano", scorers=["utility"], store=store) as rg:
        with rg.run(question) as run:
            run.retrieved("birthplace", [Passage("Hugo Rosquist was born in Upper Dunness.")])
            run.answered("Upper Dunness")
        assert rg.flush(timeout=60)


class Watching:
    """A `ragguard watch` of its own process, and what it has printed so far."""

    def __init__(self, store, stdout):
        command = [
            sys.executable,
            "-c",
            "from ragguard.cli import main; main()",
            "watch",
            str(store),
            "--interval",
            "0.05",
        ]
        self.process = subprocess.Popen(
            command, stdout=stdout, stderr=subprocess.PIPE,
            # A shell's background commands, such as a CI run's, are deaf to it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        self.said = b""

    def read_from(self, descriptor):
        def read():
            try:
                while found := os.read(descriptor, 65536):
                    self.said += found
            except OSError:  # a terminal whose other side is gone
                pass

        threading.Thread(target=read, daemon=True).start()

    def waits_for(self, text, times=1):
        def printed():
            assert self.process.poll() is None, self.process.stderr.read().decode()
            return self.printed().count(text) >= times

        eventually(printed, 60, every=0.02, found=self.printed)

    def printed(self):
        return self.said.decode(errors="replace")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def ends(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(30) == 0
        assert self.process.stderr.read() == b""


@pytest.fixture
def piped():
    running = []

    def start(store):
        watching = Watching(store, subprocess.PIPE)
        watching.read_from(watching.process.stdout.fileno())
        running.append(watching)
        return watching

    yield start
    for watching in running:
        watching.close()


def test_a_store_that_comes_and_goes_is_followed(tmp_path, piped):
    store = tmp_path / "ragguard.db"
    watching = piped(store)
    assert watching.process.stderr.readline().decode() == f"waiting for {store} …\n"
    capture(store)
    watching.waits_for(QUESTION)
    capture(store, "And who else was born there?")
    watching.waits_for("And who else was born there?")
    assert watching.said.decode().count(QUESTION) == 1
    for path in tmp_path.glob("ragguard.db*"):
        path.unlink()
    capture(store, "Is this a new store?")
    watching.waits_for("Is this a new store?")
    watching.ends()


def test_a_terminal_shows_a_table_that_is_kept_up_to_date(tmp_path):
    store = tmp_path / "ragguard.db"
    ours, theirs = pty.openpty()
    watching = Watching(store, theirs)
    os.close(theirs)
    watching.read_from(ours)
    try:
        watching.waits_for("waiting for")
        capture(store)
        watching.waits_for("Hugo")
        watching.ends()
    finally:
        watching.close()
        os.close(ours)


@pytest.mark.parametrize("once", [["--once"], []])
@pytest.mark.parametrize("kind", ["run file", "folder"])
def test_something_that_is_no_store_is_refused(tmp_path, kind, once):
    path = tmp_path / "runs.jsonl"
    path.write_text('{"format": "ragguard.runs/1"}\n') if kind == "run file" else path.mkdir()
    done = CliRunner().invoke(app, ["watch", str(path), *once])
    assert (done.exit_code, "no runs" in done.output) == (2, False)


def test_once_shows_what_is_there(tmp_path):
    store = tmp_path / "ragguard.db"
    nothing = CliRunner().invoke(app, ["watch", str(store), "--once"])
    assert (nothing.exit_code, "no runs" in nothing.output, store.exists()) == (2, False, False)
    capture(store)
    shown = CliRunner().invoke(app, ["watch", str(store), "--once"], env={"COLUMNS": "160"})
    assert "Hugo Rosquist" in shown.output
    assert not Path(f"{store}-journal").exists()
