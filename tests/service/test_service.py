"""The service: everything captured is scored once, whatever the engine, the disk, a sink or a user's function does."""

import asyncio
import sqlite3
import threading
import time
from functools import partial

import pytest
from support.child import in_child
from support.polling import eventually
from support.runs import a_run, as_events, scores_of
from support.scripted_pipeline import ListSink, ScriptedPipeline

from ragguard import RagGuard
from ragguard.capture.events import RunEnded, RunStarted
from ragguard.errors import Closed, EngineUnreachable, InvalidInput, StoreUnavailable
from ragguard.records import Passage, Run
from ragguard.runtime.circuit_breaker import RetrySchedule
from ragguard.storage.sqlite.reader import StoreReader

SETTINGS = {"retry": RetrySchedule(attempts=3, first=0.01, longest=0.05)}


def capture(service, *runs):
    for run in runs:
        for event in as_events(run):
            service.intake(event)


# What was captured is scored


def test_a_captured_run_is_scored_once_on_the_scorers_thread(make):
    service = make()
    capture(service, a_run())
    report = service.flush(10)
    assert report
    assert (report.captured, report.steps, report.scored, report.pending) == (1, 2, 1, 0)
    assert service.store.scores("r1") == scores_of(a_run())
    assert service.scripted.threads == {"ragguard-scorer"}


def test_run_from_capture_to_flush_takes_five_transactions(make):
    service, begun = make(when="run"), []
    capture(service, a_run("r0"))
    assert service.flush(10)
    with service.store._db.snapshot() as db:
        db.set_trace_callback(lambda sql: begun.append(sql) if sql.startswith("BEGIN") else None)
    taken = []
    for number in range(1, 6):
        capture(service, a_run(f"r{number}"))
        assert service.flush(10)
        taken.append(len(begun))
        begun.clear()
    assert service.store.counts["runs_scored"] == 6
    assert min(taken) <= 5  # a look for work that the run before had asked for may come with this one


def test_nothing_is_started_before_it_is_needed(make):
    before = {thread.name for thread in threading.enumerate()}
    service = make()
    assert {thread.name for thread in threading.enumerate()} == before
    assert service.close(1.0)


def test_flush_honours_its_timeout_and_says_what_is_missing(make):
    service = make(ScriptedPipeline(gate=threading.Event()))
    capture(service, a_run("r1"), a_run("r2"))
    report = service.flush(0.2)  # nothing will ever be scored
    assert not report
    assert (report.scored, report.pending) == (0, 2)
    assert str(report).startswith("not everything is scored: 2 pending")
    service.scripted.gate.set()
    assert service.flush(10)


def test_so_many_runs_are_scored_at_once_and_no_more(make):
    service = make(ScriptedPipeline(gate=threading.Event()), concurrency=3)
    capture(service, *(a_run(f"r{number}") for number in range(10)))
    eventually(lambda: service.scripted.running == 3)
    service.scripted.gate.set()
    assert service.flush(10)
    assert service.scripted.most_running == 3


def test_pending_work_goes_on_when_the_store_is_opened_again(make):
    stuck = make(ScriptedPipeline(gate=threading.Event()))
    capture(stuck, a_run("r1"), a_run("r2"))
    assert stuck.close(0.1).pending == 2
    service = make()
    assert service.flush(10)
    assert sorted(run.id for run in service.scripted.seen) == ["r1", "r2"]


# Faults


def test_while_the_engine_is_down_one_run_at_a_time_is_tried(make):
    service = make(
        ScriptedPipeline(fault=lambda run: EngineUnreachable("nothing answers")),
        concurrency=8,
        retry=RetrySchedule(50, 0.05, 0.05),
    )
    capture(service, *(a_run(f"r{number}") for number in range(50)))
    eventually(lambda: len(service.scripted.seen) >= 24)  # the circuit opens after two rounds of eight
    service.scripted.most_running = 0
    already = len(service.scripted.seen)
    eventually(lambda: len(service.scripted.seen) >= already + 3)
    assert service.scripted.most_running == 1
    assert len({run.id for run in service.scripted.seen}) > 8


def test_flush_does_not_wait_for_an_attempt_that_is_too_far_away(make):
    service = make(
        ScriptedPipeline(fault=lambda run: EngineUnreachable("nothing answers")),
        retry=RetrySchedule(9, 3600.0, 3600.0),
    )
    capture(service, a_run())
    eventually(lambda: service.store.failures("r1"))
    report = service.flush(600)
    assert not report
    assert report.pending == 1


# Sinks


def test_sinks_get_what_was_stored(make):
    sink = ListSink()
    service = make(sinks=[sink])
    capture(service, a_run())
    assert service.flush(10)
    [scored] = sink.got
    assert scored.run == a_run()
    assert list(scored.scores) == scores_of(a_run())
    assert scored.ended_ns >= scored.started_ns > 0
    service.close(5)
    assert sink.closed == 1


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), OSError()]
)
def test_scoring_that_ends_in_an_error_of_its_own_is_tried_again_after_a_pause(make, monkeypatch, error):
    async def attempt(*args):
        pipeline.seen.append(args)
        raise error

    pipeline = ScriptedPipeline()
    monkeypatch.setattr("ragguard.service.run_scoring.RunScoring._attempt", attempt)
    service = make(pipeline, retry=RetrySchedule(50, 60.0, 60.0), exit_timeout=0.5)
    capture(service, a_run())
    assert not service.flush(0.3)
    assert len(pipeline.seen) < 5, "one may have been claimed before the pause began"


# The user's functions


def test_references_are_found_on_the_scorers_side_and_kept(make):
    asked = []

    def references(question):
        asked.append((question, threading.current_thread().name))
        return "Ada Berg"

    service = make(references=references)
    run = a_run()
    run.references = None
    capture(service, run, a_run("has some"))
    assert service.flush(10)
    [(question, thread)] = asked
    assert question == run.question
    assert thread != threading.current_thread().name
    assert {one.id: one.references for one in service.scripted.seen} == {
        "r1": ["Ada Berg"],
        "has some": ["Ada Berg"],
    }
    assert service.store.run("r1").references == ["Ada Berg"]


def test_redaction_comes_before_anything_is_written(make, tmp_path):
    def redact(text):
        assert threading.current_thread() is not threading.main_thread()
        if "boom" in text:
            raise ValueError("cannot")
        return text.replace("Ada Berg", "[NAME]")

    service = make(redact=redact)
    run = a_run()
    run.metadata = {"asked by": "Ada Berg", "deep": [{"x": "Ada Berg"}], "n": 3}
    run.steps[0].passages[0] = Passage("Ada Berg founded it", metadata={"author": "Ada Berg"})
    run.steps[1].candidates.append(Passage("boom"))
    capture(service, run)
    assert service.flush(10)
    read = service.store.run("r1")
    assert read.answer == "[NAME]"
    assert read.metadata == {"asked by": "[NAME]", "deep": [{"x": "[NAME]"}], "n": 3}
    assert read.steps[0].passages[0].text == "[NAME] founded it"
    assert read.steps[1].candidates[-1].text == ""
    assert service.scripted.seen[0].references == ["[NAME]"]
    service.close(5)
    assert b"Ada Berg" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def _failing(text):
    raise ValueError(f"cannot parse {text!r}") from OSError(text)


@pytest.mark.parametrize(
    ("redact", "logged"),
    [(_failing, "ValueError"), (lambda text: 3, "TypeError"), (lambda text: None, None)],
)
def test_a_redaction_that_keeps_nothing_is_told_and_what_it_should_hide_is_nowhere(redact, logged, caplog):
    with RagGuard("nano", store=None, redact=redact) as rg:
        with rg.run("Is John Doe ill?") as run:
            run.retrieved("John Doe", ["John Doe has a cold."])
        report = str(rg.flush(60))
        failures = rg.failures(run)
    assert {one.message for one in failures} == {"redact= left nothing of this message, or failed on it"}
    assert "redact= left nothing" in report
    assert caplog.text.count("redact raised") == caplog.text.count(f"redact raised {logged}") == bool(logged)
    for said in (caplog.text, report, str(failures)):
        assert "cannot parse" not in said
        assert "John" not in said


# Without a store


def test_without_a_store_what_is_too_much_is_dropped_and_counted(make):
    service = make(ScriptedPipeline(gate=threading.Event()), path=None, queue_size=4, concurrency=1)
    capture(service, a_run("first"))
    assert service.scripted.entered.wait(10)
    for number in range(8):
        capture(service, a_run(f"r{number}"))
        service.wait_until_written()
    service.scripted.gate.set()
    report = service.flush(10)
    assert not report
    assert report.dropped == 5
    assert [run.id for run in service.scripted.seen] == ["first", "r5", "r6", "r7"]


# Its end


@pytest.mark.parametrize("path", ["store.db", None])
def test_close_without_any_time_still_says_what_is_left(make, tmp_path, caplog, path):
    service = make(
        ScriptedPipeline(gate=threading.Event()),
        path=path and tmp_path / path,
        queue_size=9,
    )
    capture(service, *(a_run(f"r{number}") for number in range(3)))
    report = service.close(0.0)
    assert not report
    assert (report.captured, report.pending) == (3, 3)
    assert "nothing was captured" not in str(report)
    assert ("there is no store, so unfinished work is lost" in caplog.text) == (path is None)


async def test_scoring_after_the_end_says_so(make):
    service = make()
    service.close(1)
    with pytest.raises(Closed, match="new RagGuard"):
        await service.scoring.evaluate(a_run())


def test_flush_on_the_scorers_own_thread_cannot_wait_and_does_not(make):
    reports = []

    class Flushing(ListSink):
        async def submit(self, scored):
            reports.append(service.flush(5))

    service = make(sinks=[Flushing()])
    capture(service, a_run())
    assert service.flush(10)
    assert not reports[0]


def test_a_forked_child_captures_and_scores_on_its_own(make):
    service = make()
    capture(service, a_run("parent"))

    def work():
        mine = service.services.get()
        capture(mine, a_run("child"))
        report = mine.flush(10)
        return bool(report) and report.pending == 0 and len(mine.store.scores("child")) == 3

    in_child(work)
    assert service.flush(10)
    assert len(service.store.scores("parent")) == 3
    assert len(service.store.scores("child")) == 3


@pytest.mark.parametrize("path", ["s.db", None])
def test_a_forked_child_reports_its_own_runs_alone(make, tmp_path, path):
    service = make(path=path and tmp_path / path, sample_rate=0.5)
    capture(service, *(a_run(f"parent{number}") for number in range(5)))
    for number in range(40):
        service.recorder.run_started(f"r{number}")
        service.recorder.run_ended(RunEnded(f"r{number}"))
    service.store.count("events_lost", 2)
    service.store.count("events_late", 3)
    before = service.flush(10)
    assert (before.captured > 5, before.unsampled > 0, before.lost, before.late) == (True, True, 2, 3)

    def work():
        mine = service.services.get()
        capture(mine, a_run("child"))
        report = mine.flush(10)
        said = (report.captured, report.steps, report.scored, report.unsampled, report.lost, report.late)
        return bool(report) and said == (1, 2, 1, 0, 0, 0)

    stored = service.store.run_count()
    in_child(work)
    after = service.flush(10)
    assert (after.captured, after.scored) == (before.captured, before.scored)
    if path:
        assert service.store.run_count() == stored + 1


def test_a_fork_in_the_middle_of_work_loses_nothing_of_the_parents(make):
    service = make()
    stop = threading.Event()
    captured = []

    def busy():
        while not stop.wait(0.005):
            captured.append(a_run(f"r{len(captured)}"))
            capture(service, captured[-1])

    thread = threading.Thread(target=busy)
    thread.start()

    def child(number):
        mine = service.services.get()
        capture(mine, a_run(f"c{number}"))
        return bool(mine.flush(20))

    try:
        for number in range(5):
            in_child(partial(child, number))
    finally:
        stop.set()
        thread.join()
    assert service.flush(30)
    assert all(len(service.store.scores(run.id)) == 3 for run in captured[:: max(1, len(captured) // 50)])
    assert service.store.run_count() == len(captured) + 5


# On demand


async def test_a_run_is_scored_when_asked_for(make):
    service = make()
    scored = await service.scoring.evaluate(a_run())
    assert list(scored.scores) == scores_of(a_run())
    assert service.store.scores("r1") == scores_of(a_run())
    again = await service.scoring.evaluate(a_run())
    assert list(again.scores) == scores_of(a_run())
    assert len(service.scripted.seen) == 1


async def test_asking_for_one_run_many_times_at_once_asks_the_engine_once(make):
    service = make()
    answers = await asyncio.gather(*(service.scoring.evaluate(a_run()) for _ in range(8)))
    assert all(list(scored.scores) == scores_of(a_run()) for scored in answers)
    assert len(service.scripted.seen) == 1


async def test_cancelling_who_asked_leaves_the_run_to_the_background(make):
    service = make(ScriptedPipeline(gate=threading.Event()))
    asked = asyncio.ensure_future(service.scoring.evaluate(a_run()))
    assert await asyncio.to_thread(service.scripted.entered.wait, 10)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    service.scripted.gate.set()
    assert await asyncio.to_thread(service.flush, 10)
    assert len(service.store.scores("r1")) == 3


async def test_a_run_that_cannot_be_taken_is_a_failure_in_its_place(make):
    service = make()
    twice = a_run("twice")
    twice.steps[1].id = twice.steps[0].id
    found = {scored.run.id: scored async for scored in service.scoring.evaluate_each([a_run(), twice], 2)}
    assert len(found["r1"].scores) == 3
    assert [failure.error for failure in found["twice"].failures] == ["InvalidInput"]
    with pytest.raises(InvalidInput, match="different ids"):
        await service.scoring.evaluate(twice)


@pytest.mark.parametrize("call", ["flush", "close"])
def test_a_timeout_may_be_infinite(make, call):
    service = make()
    capture(service, a_run())
    assert getattr(service, call)(float("inf"))


@pytest.mark.parametrize("timeout", [float("nan"), -1, None, "1"])
@pytest.mark.parametrize("call", ["flush", "close"])
def test_a_timeout_that_is_none_is_refused(make, call, timeout):
    service = make()
    with pytest.raises(InvalidInput, match="timeout"):
        getattr(service, call)(timeout)


# A clock that is set, a file that goes


@pytest.mark.parametrize("hours", [-24, 24])
def test_a_clock_that_is_set_delays_nothing_and_hides_nothing_from_flush(make, monkeypatch, hours):
    service = make()
    capture(service, a_run("before"))
    assert service.flush(10)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + hours * 3_600_000_000_000)
    service.intake(RunStarted(Run("open", "q", status="open", started_ns=time.time_ns())))
    capture(service, *(a_run(f"r{number}") for number in range(20)))
    report = service.flush(10)
    assert (report.complete, report.scored, report.pending, report.open) == (True, 21, 0, 1)
    service.store.housekeep(run_ttl=3600)
    assert service.store.left().open == 1


def test_flush_says_that_it_waits_for_the_disk_and_goes_on_once_it_is_freed(make, monkeypatch, caplog):
    service = make()
    capture(service, a_run("before"))
    assert service.flush(10)

    def write(batch, write=service.store.write):
        """Refuses until flush has said that it waits, as nothing else ends the outage."""
        if "flush waits for the disk, at most 60 s: the disk is full" not in caplog.text:
            service.store.outage = "the disk is full"
            raise StoreUnavailable(service.store.outage)
        return write(batch)

    monkeypatch.setattr(service.store, "write", write)
    capture(service, a_run("meanwhile"))
    assert service.flush(60)
    assert not service.store.outage


def test_flush_close_and_readers_come_back_while_the_disk_stands_still(make, tmp_path):
    """Another process holds the lock until they have."""
    service = make()
    capture(service, a_run("before"))
    assert service.flush(10)
    lock = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    capture(service, a_run("meanwhile"))
    assert not service.flush(0.2)
    service.wait_until_written(0.2)
    assert len(service.store.scores("before")) == 3
    assert not service.store.outage, "the writer still waits for the lock"
    assert not service.close(0.2)
    make().close(0.2)  # where nothing was captured either, the lock is not waited for
    lock.execute("COMMIT")
    lock.close()
    eventually(lambda: StoreReader(tmp_path / "s.db").run("meanwhile"))
