"""The store: what is written is read as it was, scored once, kept once, and gone once it is deleted."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import time
from dataclasses import replace

import pytest
from support.commands import ragguard
from support.program import command, environment, run_program
from support.runs import a_run, a_step, as_events, scores_of
from support.stored import captured, closed_after, store_scores

from ragguard.capture.events import Delivered, RunEnded, StepAmended, StepEnded
from ragguard.errors import Closed, InvalidInput, StoreError
from ragguard.records import (
    Decision,
    Failure,
    Passage,
    RetrievalStep,
    Run,
    ScoredRun,
)
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.storage.sqlite.store import Store
from ragguard.text.plain import CUT


def test_a_captured_run_is_read_back_as_it_was(store):
    run = a_run()
    captured(store, run)
    assert store.run("r1") == run
    assert list(store.runs()) == [run]
    assert store.run_count() == 1
    assert store.run("another") is None


def test_values_that_json_and_sqlite_cannot_hold_are_stored_as_text(store):
    class Odd:
        def __str__(self):
            raise RuntimeError("no text")

    run = Run(
        "r1", "half \ud800 a pair", answer="nul \x00 inside", metadata={"nan": float("nan"), "odd": Odd()}
    )
    run.steps = [RetrievalStep("s1", "r1", passages=[Passage("t\udfff", metadata={("a", 1): {2}})])]
    store.add_scored([ScoredRun(run)])
    read = store.run("r1")
    assert read.question == "half ? a pair"
    assert read.answer == "nul \x00 inside"
    assert read.metadata == {
        "nan": None, "odd": "<Odd: unreadable: RuntimeError>", CUT: "odd: unreadable: RuntimeError",
    }  # fmt: skip
    assert read.steps[0].passages[0].text == "t?"
    assert read.steps[0].passages[0].metadata == {"('a', 1)": [2]}


def test_a_step_of_a_run_that_was_never_announced_opens_it(store):
    store.record([StepEnded(a_step("lost"))])
    assert store.run("lost").status == "open"
    store.record([RunEnded("lost", question="what?", ended_ns=9)])
    assert store.run("lost").question == "what?"
    assert len(store.run("lost").steps) == 1


def test_an_amended_step_keeps_what_was_retrieved(store):
    run = a_run(steps=1)
    started, step, ended = as_events(run)
    kept = [run.steps[0].passages[2], Passage("rewritten by a compressor", "p9")]
    decision = Decision(kept[:1], [], "pruned")
    store.record([started, step, StepAmended("r1", step.step.id, kept, decision), ended])
    read = store.run("r1").steps[0]
    assert read.passages == kept
    assert read.candidates == step.step.passages
    assert read.decision == decision


def test_writer_computes_delivered_passages_and_their_note_on_the_step(store):
    run = a_run(steps=1)
    started, step, ended = as_events(run)
    kept, read = [run.steps[0].passages[2]], []
    amended = StepAmended(
        "r1", step.step.id, lambda: read.append(1) or Delivered(kept, {"ragguard.delivered": "unknown"})
    )
    assert not read
    store.record([started, step, amended, ended])
    got = store.run("r1").steps[0]
    assert (got.passages, got.metadata["ragguard.delivered"], read) == (kept, "unknown", [1])


@pytest.mark.parametrize("late", [True, False])
def test_a_step_that_fails_after_it_has_retrieved_keeps_its_candidates(store, late):
    run = a_run(steps=1)
    started, step, ended = as_events(run)
    failed = StepAmended("r1", step.step.id, [], error="the tool is gone")
    store.record([started, step, *([ended, failed] if late else [failed, ended])])
    got = store.run("r1").steps[0]
    assert (got.status, got.error, got.passages) == ("error", "the tool is gone", [])
    assert got.candidates == run.steps[0].candidates


def test_an_event_that_cannot_be_written_does_not_take_the_others_with_it(store, caplog):
    run = a_run()
    poison = StepEnded(RetrievalStep("bad", "r1", passages=[Passage(42)]))
    store.record([*as_events(run)[:-1], poison, as_events(run)[-1]])
    assert store.run("r1") == run
    assert store.counts["events_refused"] == 1
    assert "could not be stored" in caplog.text


# Scores


def test_each_score_is_stored_once(store):
    run = a_run()
    captured(store, run)
    assert store_scores(store, run, scores_of(run)) == scores_of(run)
    assert store_scores(store, run, scores_of(run, value=0.9)) == []
    assert store.scores("r1") == scores_of(run)


def test_scores_of_a_run_that_changed_since_are_replaced(store):
    run = a_run(steps=1)
    captured(store, run)
    store_scores(store, run, scores_of(run, 0.1))
    store.record([StepEnded(a_step("r1", 1))])
    [claim] = store.claim(5)[0]
    assert claim.revision == 2
    assert len(claim.run.steps) == 2
    store_scores(store, claim.run, scores_of(claim.run, 0.2), revision=2)
    assert [score.value for score in store.scores("r1")] == [0.2, 0.2, 0.2]


def test_a_run_that_changes_while_it_is_scored_is_due_again(store):
    run = a_run(steps=1)
    captured(store, run)
    [claim] = store.claim(1)[0]
    store.record([StepEnded(a_step("r1", 1))])
    store_scores(store, run, scores_of(run), revision=claim.revision)
    store.release("r1")
    assert [again.revision for again in store.claim(1)[0]] == [2]


def test_failures_stand_until_the_next_attempt(store):
    run = a_run()
    captured(store, run)
    down = Failure("belief", "EngineUnreachable", "nothing answers", True, "r1", occurred_ns=5)
    soon = time.time_ns()
    store_scores(store, run, scores_of(run)[:1], [down], retry_ns=soon)
    assert store.failures("r1") == [down]
    assert store.left().pending == 1
    store_scores(store, run, scores_of(run))
    assert store.failures("r1") == []
    assert len(store.scores("r1")) == 3
    assert store.left().pending == 0


# Work


def test_a_run_is_claimed_once_and_only_when_it_has_ended(store):
    open_run, ended = a_run("open"), a_run("ended")
    store.record(as_events(open_run)[:-1])
    captured(store, ended)
    assert [claim.run.id for claim in store.claim(9)[0]] == ["ended"]
    assert store.claim(9)[0] == []
    store.release("ended")
    assert [claim.run.id for claim in store.claim(9)[0]] == ["ended"]
    assert (store.left().pending, store.left().open) == (1, 1)


def test_a_retry_waits_for_its_time(store):
    run = a_run()
    captured(store, run)
    later = time.time_ns() + 3_600_000_000_000
    store_scores(store, run, [], [Failure("s", "EngineTimeout", "late", True)], retry_ns=later)
    store.release("r1")
    assert store.claim(1)[0] == []
    assert store.left().next_ns == later


def test_run_that_the_sinks_have_not_taken_is_claimed_again(store):
    run = a_run()
    captured(store, run)
    store_scores(store, run, scores_of(run), emit=True)
    [claim] = store.claim(1)[0]
    assert claim.score is False
    assert claim.unsent == scores_of(run)
    store.emitted("r1")
    store.release("r1")
    assert store.claim(1)[0] == []
    assert store.left().pending == 0


def test_a_submitted_run_is_claimed_unless_all_is_said(store):
    run = a_run()
    first = store.submit(run, "x")
    assert first.score
    assert store.claim(1)[0] == []
    store_scores(store, run, scores_of(run), revision=first.revision)
    store.release("r1")
    assert not store.submit(run, "x").score
    assert store.submit(run, "another engine").score


def test_an_id_that_another_question_has_is_refused(store):
    store.add_scored([ScoredRun(a_run())])
    with pytest.raises(InvalidInput, match=r"run\.id.*another question.*who founded it"):
        store.submit(a_run(question="what else?"), "x")


def test_memory_bounds_what_waits():
    store = Store(most_waiting=2)
    for number in range(5):
        captured(store, a_run(f"r{number}"))
    assert sorted(claim.run.id for claim in store.claim(9)[0]) == ["r3", "r4"]
    assert store.counts["runs_dropped"] == 3
    assert [failure.error for failure in store.failures("r0")] == ["QueueFull"]


def test_memory_lets_the_oldest_runs_that_are_done_go(monkeypatch):
    monkeypatch.setattr("ragguard.storage.sqlite.ledger.MEMORY_RUNS", 10)
    store = Store()
    for number in range(10):
        run = a_run(f"r{number}")
        captured(store, run)
        store_scores(store, run, scores_of(run))
    captured(store, a_run("last"))
    assert [run.id for run in store.runs()] == ["last"]


# Processes


def test_runs_of_a_dead_process_are_taken_over(tmp_path):
    code = (
        "import os, sys; from ragguard.storage.sqlite.store import Store; from support.runs import *\n"
        "store = Store(sys.argv[1])\n"
        "store.record(as_events(a_run('ended')) + as_events(a_run('open'))[:-1])\n"
        "os._exit(9)"
    )
    run_program(code, tmp_path / "s.db", check=False)
    store = Store(tmp_path / "s.db")
    assert store.left().pending == 0
    store.housekeep()
    assert {claim.run.id: claim.run.status for claim in store.claim(9)[0]} == {
        "ended": "ok",
        "open": "abandoned",
    }


def test_a_lease_that_ran_out_is_no_lease(tmp_path):
    first, second = Store(tmp_path / "s.db"), Store(tmp_path / "s.db")
    captured(first, a_run())
    with closed_after(tmp_path / "s.db") as db:
        db.execute("UPDATE leases SET expires_ns = 1, place = 'another machine'")
    second.housekeep()
    assert len(second.claim(9)[0]) == 1


@pytest.fixture
def shared(tmp_path):
    """Two stores over one file, as two living processes have them."""
    return Store(tmp_path / "s.db"), Store(tmp_path / "s.db")


def test_a_run_that_another_process_scores_is_left_to_it_and_its_scores_are_there_afterwards(shared):
    first, second = shared
    run = a_run()
    assert first.submit(run, "settings").score
    assert second.submit(replace(run, answer="another"), "settings").elsewhere == (str(os.getpid()), 1)
    assert second.run(run.id) == run  # nothing was written
    store_scores(first, run, scores_of(run), identity="settings")
    claim = second.submit(run, "settings")
    assert (claim.elsewhere, claim.score) == (None, False)


def test_what_a_process_whose_engine_does_not_answer_has_not_begun_goes_to_another_one(shared):
    first, second = shared
    first.add_due([a_run("r1"), a_run("r2"), a_run("r3")])
    assert [claim.run.id for claim in first.claim(1)[0]] == ["r1"]
    assert second.submit(a_run("r2"), "").elsewhere == (str(os.getpid()), 3)
    first.housekeep(engine_answers=False)
    assert second.submit(a_run("r1"), "").elsewhere
    assert second.submit(a_run("r2"), "").score
    assert [claim.run.id for claim in first.claim(9)[0]] == ["r3"]
    first.housekeep()
    assert second.submit(a_run("r3"), "").elsewhere


def test_a_run_that_waits_for_another_attempt_goes_to_the_first_process_that_tries_it(shared):
    first, second = shared
    run = a_run()
    first.submit(run, "")
    store_scores(first, run, retry_ns=2**62)
    assert second.submit(run, "").score


def test_runs_of_a_process_that_was_killed_are_claimed_at_once(tmp_path):
    code = (
        "import os, sys; from ragguard.storage.sqlite.store import Store; from support.runs import a_run\n"
        "Store(sys.argv[1]).submit(a_run(), ''); os._exit(9)"
    )
    run_program(code, tmp_path / "s.db", check=False)
    assert Store(tmp_path / "s.db").submit(a_run(), "").score


def test_a_late_failure_of_a_run_that_another_process_has_done_makes_nothing_due(shared):
    """As of a process that was suspended for longer than its lease."""
    first, second = shared
    run = a_run()
    first.submit(run, "settings")
    with closed_after(first.path) as db:
        db.execute("UPDATE leases SET expires_ns = 1")
    second.submit(run, "settings")
    store_scores(second, run, scores_of(run))
    store_scores(first, run, retry_ns=1)
    with closed_after(first.path) as db:
        assert db.execute("SELECT due_ns, owner FROM runs").fetchone() == (None, None)


def test_a_run_that_nobody_ends_is_abandoned_after_its_time(store):
    store.record(as_events(a_run("old"))[:-1])
    fresh = a_run("fresh")
    fresh.started_ns = time.time_ns()
    store.record(as_events(fresh)[:1])
    store.housekeep(run_ttl=60)
    assert [(claim.run.id, claim.run.status) for claim in store.claim(9)[0]] == [("old", "abandoned")]
    store.record([as_events(a_run("old"))[-1]])
    assert store.run("old").status == "ok"


def test_two_processes_write_at_once(tmp_path):
    code = (
        "import sys; from ragguard.storage.sqlite.store import Store; from support.runs import *\n"
        "store = Store(sys.argv[1])\n"
        "for n in range(100): store.record(as_events(a_run(f'{sys.argv[2]}-{n}')))\n"
        "store.close()"
    )
    path = str(tmp_path / "s.db")
    running = [subprocess.Popen(command(code, path, name), env=environment()) for name in "abc"]
    assert [one.wait(timeout=60) for one in running] == [0, 0, 0]
    store = Store(path)
    assert store.run_count() == 300
    with closed_after(path) as db:
        assert db.execute("SELECT min(uses), max(uses) FROM passage_uses").fetchone() == (299, 299)


# Removal


def test_texts_stay_as_long_as_anybody_needs_them_and_no_longer(tmp_path):
    rng = random.Random(0)
    store = Store(tmp_path / "s.db")
    there: dict[str, set[str]] = {}

    def some(run_id):
        run = a_run(run_id, steps=0)
        for index in range(rng.randrange(3)):
            step = a_step(run_id, index)
            step.passages = [Passage(f"text {rng.randrange(12)}") for _ in range(rng.randrange(5))]
            step.candidates = [*step.passages, Passage(f"text {rng.randrange(12)}")]
            run.steps.append(step)
        return run

    for _ in range(400):
        run = some(f"r{rng.randrange(6)}")
        match rng.randrange(4):
            case 0:
                assert store.delete(run.id) == (there.pop(run.id, None) is not None)
                continue
            case 1 if run.id not in there:
                captured(store, run)
            case 2 if run.id in there:
                late = replace(a_step(run.id, 9), id=f"late{rng.random()}", passages=[Passage("text 3")])
                late.candidates = late.passages
                store.record([StepEnded(late)])
                there[run.id] |= {"text 3"}
                continue
            case _:
                store.add_scored([ScoredRun(run)])
        there[run.id] = {passage.text for step in run.steps for passage in step.candidates}
        with closed_after(tmp_path / "s.db") as db:
            texts = {row[0] for row in db.execute("SELECT text FROM passages")}
        assert texts == set().union(*there.values())
    assert {run.id: {p.text for step in run.steps for p in step.candidates} for run in store.runs()} == there


def test_deleted_texts_are_gone_from_the_files(tmp_path):
    store = Store(tmp_path / "s.db")
    secret, shared = a_run("secret"), a_run("shared")
    secret.steps[0].passages[0].text = secret.steps[0].candidates[0].text = "the crown jewels"
    secret.question = "where are the jewels?"
    captured(store, secret, shared)
    store_scores(store, secret, scores_of(secret))
    assert store.delete("secret") is True
    assert store.delete("secret") is False
    assert store.run("secret") is None
    assert store.run("shared") == shared
    assert store.scores("secret") == []
    held = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"jewels" not in held
    assert b"passage 0 1 says" in held


def test_old_runs_are_removed_scored_or_not(store):
    old, young = a_run("old"), a_run("young")
    young.ended_ns = time.time_ns()
    captured(store, old, young)
    store.record(as_events(a_run("open"))[:-1])
    store.housekeep(retention=60)
    assert [run.id for run in store.runs()] == ["young", "open"]


def test_a_deleted_run_that_was_being_scored_stays_deleted(store):
    run = a_run()
    captured(store, run)
    store.claim(1)[0]
    store.delete("r1")
    assert store_scores(store, run, scores_of(run)) == []
    assert store.run_count() == 0


# Life


def test_a_closed_store_says_so(tmp_path):
    store = Store(tmp_path / "s.db")
    store.close()
    store.close()
    with pytest.raises(Closed, match="closed"):
        store.run("r1")


def test_path_where_no_store_can_be_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, says in (
        ("pipe", "is a folder, a pipe or a device"), ("nowhere/s.db", "no folder"), ("", "is a folder"),
    ):  # fmt: skip
        for opened in (Store, StoreReader):
            with pytest.raises(StoreError, match=says):
                opened(tmp_path / path)
    with pytest.raises(StoreError, match="check the path"):
        StoreReader(tmp_path / "s.db")


_OF_R1 = "run = (SELECT seq FROM runs WHERE id = 'r1')"


@pytest.fixture(
    params=[
        "runs SET body = 'no JSON' WHERE id = 'r1'",
        "runs SET body = '[1]' WHERE id = 'r1'",
        "runs SET question = x'ff00' WHERE id = 'r1'",
        "runs SET started_ns = 'noon' WHERE id = 'r1'",
        f"steps SET query = x'ff00' WHERE {_OF_R1}",
    ]
)
def path(tmp_path, request):
    """A store of three runs, of which r1 cannot be read."""
    store = Store(tmp_path / "s.db")
    captured(store, *(a_run(f"r{number}") for number in range(3)))
    store.close()
    connection = sqlite3.connect(tmp_path / "s.db")
    with connection:
        connection.execute(f"UPDATE {request.param}")
    connection.close()
    return tmp_path / "s.db"


@pytest.mark.parametrize("read", [Store.runs, Store.scored_runs, lambda store: [store.run("r1")]])
def test_reader_names_the_run_and_the_way_out(path, read):
    store = StoreReader(path)
    with pytest.raises(
        StoreError, match=r"the run 'r1' in .* cannot be read: .*; delete it with rg\.delete\('r1'\)"
    ):
        list(read(store))
    store.close()
    done = ragguard("report", path, code=2)
    assert "'r1'" in done.output


def test_due_run_that_cannot_be_read_holds_nobody_up_and_fails_for_good(path):
    store = Store(path)
    store.housekeep()
    assert [claim.run.id for claim in store.claim(5)[0]] == ["r0", "r2"]
    assert store.left().pending == 2
    [failure] = store.failures("r1")
    assert "the run cannot be read from the store" in failure.message
    assert not failure.will_retry
    assert store.delete("r1")
    assert [run.id for run in store.runs()] == ["r0", "r2"]
    store.close()


def run_with(id, numbers):
    found = [Passage(f"text {number} \u00e9", f"p{number}") for number in numbers]
    return Run(id, "q", steps=[RetrievalStep("s", id, passages=found, candidates=found)], started_ns=1)


def kept(path):
    with closed_after(path) as db:
        return (
            db.execute("SELECT count(*) FROM passages").fetchone()[0],
            db.execute("SELECT count(*) FROM passage_uses").fetchone()[0],
        )


def test_texts_by_the_hundred_are_stored_once_and_go_with_their_last_run(tmp_path):
    path = tmp_path / "s.db"
    store = Store(path)
    first, second = run_with("first", range(350)), run_with("second", [*range(600, 149, -1), 150, 600])
    store.add_scored([ScoredRun(first)])
    assert kept(path) == (350, 0)
    store.add_scored([ScoredRun(second)])
    assert kept(path) == (601, 200)
    assert list(store.runs()) == [first, second]
    store.add_scored([ScoredRun(second)])
    assert kept(path) == (601, 200)
    store.delete("first")
    assert kept(path) == (451, 0)
    assert list(store.runs()) == [second]
    store.delete("second")
    assert kept(path) == (0, 0)
