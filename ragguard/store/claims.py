"""Runs that are taken to be scored, so that nobody else scores them at the same time."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from ragguard.records import Run, Score
from ragguard.store import reading
from ragguard.store.ledger import Due


class Claim(NamedTuple):
    """A run to be worked on; nobody else gets it until it is settled or released."""

    due: Due
    run: Run
    unsent: list[Score]
    """What was said of it already, and the sinks have not heard of."""


class Submission(NamedTuple):
    """A run that was put in to be scored by whoever put it in."""

    due: Due
    settled: bool
    """True when everything is said of it already, by the same settings; then it is not claimed."""


def claims_at(due: Sequence[Due], db: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, Claim]:
    """The due runs at these seqs, each with its scores that the sinks have not heard of."""
    runs = reading.runs_at(db, seqs)
    return {
        one.seq: Claim(one, runs[one.seq], reading.unsent_scores(db, one.seq, one.run_id))
        for one in due
        if one.seq in seqs
    }
