"""Claims on runs: a run that one worker scores is given to no other worker at the same time."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from ragguard.records import Run, Score
from ragguard.store import reading
from ragguard.store.ledger import Due


class Claim(NamedTuple):
    """A run to be scored or delivered; nobody else gets the run until it is settled or released."""

    due: Due
    run: Run
    unsent: list[Score]
    """The scores of the run that no sink has received yet."""


class Submission(NamedTuple):
    """A run that a caller has put in and scores itself."""

    due: Due
    settled: bool
    """True where the same settings have scored the run already; it is then not claimed."""


def claims_at(due: Sequence[Due], db: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, Claim]:
    """Returns the due runs with these `seq`, each with its scores that no sink has received yet."""
    runs = reading.runs_at(db, seqs)
    return {
        one.seq: Claim(one, runs[one.seq], reading.unsent_scores(db, one.seq, one.run_id))
        for one in due
        if one.seq in seqs
    }
