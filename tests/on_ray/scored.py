"""Runs `ragguard score`, and reads what it has written."""

from __future__ import annotations

import subprocess
import sys

from support.parts import scores_in
from support.program import environment

from ragguard.storage.files.partfolder import PartFolder
from ragguard.storage.sqlite.reader import StoreReader

KEY = ("run_id", "step_id", "passage_id", "position", "name", "sub_question", "stage", "scorer")
SAID = ("value", "stderr", "expectation", "label", "explanation")


def command(*arguments):
    """Returns the command line of `ragguard score` with these arguments."""
    return [sys.executable, "-c", "from ragguard.cli import main; main()", "score", *map(str, arguments)]


def score(*arguments, code=0, address=""):
    """Runs `ragguard score`, with a Ray cluster at an address; returns what it wrote to stderr."""
    done = subprocess.run(
        command(*arguments), env=environment() | {"RAY_ADDRESS": address}, capture_output=True, text=True,
        timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stderr


def in_parts(folder):
    """Returns what the scores of a folder say, by their keys."""
    return by_key([getattr(score, name) for name in (*KEY, *SAID)] for score in scores_in(PartFolder(folder)))


def in_store(path):
    """Returns what the scores of a store say, by their keys."""
    store = StoreReader(path)
    scores = [score for run in store.runs() for score in store.scores(run.id)]
    store.close()
    return by_key([getattr(score, name) for name in (*KEY, *SAID)] for score in scores)


def by_key(rows):
    rows = [(tuple(row[: len(KEY)]), tuple(row[len(KEY) :])) for row in rows]
    found = dict(rows)
    assert len(found) == len(rows), "a score stands twice"
    return found
