"""RagGuard(scorers=()): everything is kept, nothing is scored, and nothing waits for a scorer."""

from contextlib import closing

import pytest
from support.program import run_program
from support.scripted_engine import ScriptedEngine

from ragguard import RagGuard
from ragguard.storage.sqlite.store import Store


def capture(rg, runs=8):
    for number in range(runs):
        with rg.run(f"question {number}") as run:
            run.retrieved("who?", ["Ada"])


PROGRAM = """
import sys, threading
from ragguard import RagGuard

rg = RagGuard("nano", scorers=(), store=sys.argv[1] or None)
for number in range(8):
    with rg.run(f"question {number}") as run:
        run.retrieved("who?", ["Ada"])
report = rg.flush(60)
print(bool(report), report.captured, report.unscored, report.pending, report.scored, str(report).rsplit(" (", 1)[0])
print(sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("ragguard")))
rg.close()
"""


@pytest.mark.parametrize("kept", [True, False])
def test_no_scorer_is_started_and_the_report_tells_the_truth(tmp_path, kept):
    done = run_program(PROGRAM, tmp_path / "s.db" if kept else "")
    assert done.stdout.splitlines() == [
        "True 8 8 0 0 everything is stored: 8 kept without a score",
        "['ragguard-writer']",
    ]
    assert done.stderr == ""


def test_nothing_is_dropped_for_want_of_a_scorer():
    with RagGuard(ScriptedEngine(), scorers=(), store=None, queue_size=2) as rg:
        capture(rg, 50)
        report = rg.flush(30)
        assert (report.captured, report.dropped, len(rg.runs())) == (50, 0, 50)


def test_runs_that_another_process_has_to_score_are_left_to_it(tmp_path):
    with RagGuard("http://127.0.0.1:9/v1", store=tmp_path / "s.db", exit_timeout=0.1) as scoring:
        capture(scoring, 3)
        scoring.flush(0.1)
        scoring.close(0.1)
    with RagGuard(ScriptedEngine(), scorers=(), store=tmp_path / "s.db") as rg:
        capture(rg)
        assert rg.flush(30)
        rg.store.housekeep()
        assert rg.store.left().pending == 0
    with closing(Store(tmp_path / "s.db")) as again:
        again.housekeep()
        assert again.left().pending == 3


async def test_such_a_run_can_be_scored_when_it_is_asked_for(tmp_path):
    rg = RagGuard(ScriptedEngine(), scorers=(), store=tmp_path / "s.db")
    capture(rg, 1)
    await rg.aflush(30)
    assert await rg.score(rg.runs()[0]) == []
    await rg.aclose()
