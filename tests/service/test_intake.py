"""The queue between hooks and store: microseconds in a hook, nothing lost, flat memory."""

import asyncio
import threading
import time

import pytest
from support.polling import eventually
from support.program import run_program
from support.runs import a_run, as_events

from ragguard.capture.events import RunStarted, StepEnded
from ragguard.capture.handle import RunHandle
from ragguard.capture.recorder import Recorder
from ragguard.errors import StoreError, StoreUnavailable
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.runtime.faults import Faults
from ragguard.service import intake as module
from ragguard.service.configuration import Configuration
from ragguard.service.intake import UNMEASURED, Intake
from ragguard.storage.preparation import LOST
from ragguard.storage.sqlite.store import Store


class SlowStore(Store):
    """A disk that stands still until it is told to go on."""

    def __init__(self, path=None):
        super().__init__(path)
        self.go, self.at_work = threading.Event(), threading.Event()
        self.largest = 0

    def write(self, batch):
        self.at_work.set()
        assert self.go.wait(30)
        self.largest = max(self.largest, len(batch.rows))
        return super().write(batch)


class DeadDisk(Store):
    """A disk that takes nothing until it is mended."""

    mended, attempts = False, 0

    def write(self, batch):
        self.attempts += 1
        if not self.mended:
            self.outage = "the disk is full"
            raise StoreUnavailable(self.outage)
        return super().write(batch)


@pytest.fixture
def start(tmp_path):
    started = []

    def intake(store=None, **settings):
        store = store or Store(tmp_path / "s.db")
        one = Intake(Configuration(events_a_run=1, **settings), store, faults=Faults())
        started.append((one, store))
        return one, store

    yield intake
    for one, store in started:
        if isinstance(store, SlowStore):
            store.go.set()
        one.close(10)
        store.close()


def put(intake, run):
    for event in as_events(run):
        intake(event)


def test_full_durability_returns_when_the_step_is_on_the_disk(start, tmp_path):
    intake, store = start(durability="full")
    started, *steps, ended = as_events(a_run())
    intake(started)
    for step in steps:
        intake(step)
        assert step.step.id in [found.id for found in store.run("r1").steps]
    intake(ended)
    assert store.run("r1").status == "ok"


def test_events_keep_their_order_and_go_in_batches(start):
    store = SlowStore()
    intake, _ = start(store)
    for number in range(100):
        put(intake, a_run(f"r{number}", steps=1))
    store.go.set()
    intake.do(lambda: None).result(10)
    assert [run.id for run in store.runs()] == [f"r{number}" for number in range(100)]
    assert store.largest > 50


def test_a_hook_that_is_told_to_waits_for_room_and_nothing_is_lost(start):
    store = SlowStore()
    intake, _ = start(store, queue_size=UNMEASURED + 8, on_overflow="block(60.0)")
    done = threading.Event()

    def hook():
        for number in range(100):
            put(intake, a_run(f"r{number}", steps=0))
        done.set()

    threading.Thread(target=hook).start()
    assert store.at_work.wait(10)
    assert not done.wait(0.05)
    assert intake.depth <= 1.25 * (UNMEASURED + 8)
    store.go.set()
    assert done.wait(30)
    intake.do(lambda: None).result(10)
    assert store.run_count() == 100
    assert store.counts["events_lost"] == 0


@pytest.mark.parametrize("block", [0.0, 0.05])
def test_beyond_its_bound_events_are_lost_and_counted(start, caplog, monkeypatch, block):
    """A writer that has stood still for longer than `block` is not waited for any more."""
    monkeypatch.setattr(module, "STUCK", 0.05)
    store = SlowStore()
    intake, _ = start(store, queue_size=100, on_overflow=f"block({block})")
    put(intake, a_run("held", steps=0))
    assert store.at_work.wait(10)
    time.sleep(0.1)
    waits = []
    monkeypatch.setattr(intake._queue, "wait", lambda *more: waits.append(more))
    for number in range(500):
        intake(RunStarted(Run(f"r{number}")))
    assert (store.counts["events_lost"], waits) == (400, [])
    assert caplog.text.count("are lost (and counted)") == 1
    store.go.set()
    intake.do(lambda: None).result(10)
    intake(RunStarted(Run("again")))
    intake.do(lambda: None).result(10)
    assert store.run("again") is not None


def many(intake, runs=300):
    """More than may wait, whatever the policy; returns the runs."""
    made = [a_run(f"r{number}", steps=3) for number in range(runs)]
    for run in made:
        started, *steps, ended = as_events(run)
        intake(RunStarted(started.run, run_id=run.id))
        for step in steps:
            intake(StepEnded(step.step, run.id))
        intake(ended)
    return made


def test_queue_is_bounded_by_bytes_as_well(start):
    store = SlowStore()
    intake, _ = start(store, queue_size=65_536, queue_bytes=2**20)
    intake.start()
    put(intake, a_run("held", steps=0))
    assert store.at_work.wait(10)
    for number in range(1000):
        found = [Passage(f"{number} " + "x" * 100_000)]
        intake(StepEnded(RetrievalStep(f"s{number}", f"r{number}", passages=found), f"r{number}"))
    assert 8 <= intake.depth <= UNMEASURED + 10
    assert store.counts["events_lost"] == 1000 - intake.depth


async def test_a_hook_on_an_event_loop_never_waits(start, monkeypatch):
    """Whatever the settings say: neither for room, nor for the disk, nor for those that are scored."""
    store = SlowStore()
    settings = {"durability": "full", "queue_size": 100, "on_overflow": "block(60.0)"}
    for chosen in (settings, {"queue_size": 100}):
        slow = SlowStore()
        intake, _ = start(slow, **chosen)

        def wait(*more, **settings):
            raise AssertionError("it waited")

        assert not intake._may_wait()
        monkeypatch.setattr(intake, "_wait_for_disk", wait)
        for number in range(200):
            put(intake, a_run(f"r{number}", steps=1))
        assert intake._faults.count == 0
        slow.go.set()
    store.go.set()


async def test_full_durability_waits_where_code_can_wait(start):
    """At the end of `async with`, and in `aretrieved`; the loop goes on meanwhile."""
    store = SlowStore()
    intake, _ = start(store, durability="full")
    recorder = Recorder(intake)
    async with asyncio.timeout(20):
        async with RunHandle(recorder, "who?", written=intake.written, not_awaited=intake.not_awaited) as run:
            retrieving = asyncio.ensure_future(run.aretrieved("who?", ["Ada"]))
            assert await asyncio.to_thread(store.at_work.wait, 10)
            await asyncio.sleep(0.05)
            assert not retrieving.done()
            store.go.set()
            await retrieving
            assert [step.query for step in store.run(run.id).steps] == ["who?"]
            store.go.clear()
            store.at_work.clear()
            asyncio.get_running_loop().call_later(0.05, store.go.set)
        assert store.run(run.id).status == "ok"
    assert store.counts["events_unconfirmed"] == 0


def test_full_durability_says_where_the_disk_did_not_take_it(start, caplog):
    intake, store = start(DeadDisk(), durability="full")
    put(intake, a_run())
    assert store.counts["events_unconfirmed"] == 3
    assert caplog.text.count("does not hold") == 1


async def test_full_durability_in_a_plain_with_on_a_loop_is_said(start, caplog):
    intake, _ = start(durability="full")
    with RunHandle(Recorder(intake), "who?", written=intake.written, not_awaited=intake.not_awaited):
        pass
    assert caplog.text.count("use `async with rg.run(...)`") == 1


def test_a_thread_in_a_burst_is_slowed_down_while_the_disk_keeps_up(start, monkeypatch):
    """And loses nothing, though nobody told it to wait."""
    monkeypatch.setattr(module, "PACE", 20.0)  # a busy machine takes longer to write one half
    monkeypatch.setattr(module, "STUCK", 20.0)
    intake, store = start(queue_size=400)
    for number in range(500):
        put(intake, a_run(f"r{number}", steps=1))
    intake.do(lambda: None).result(30)
    assert (store.run_count(), store.counts["events_lost"]) == (500, 0)


def test_a_writer_that_is_ended_from_outside_goes_on(start, monkeypatch):
    intake, store = start()
    intake.do(lambda: None).result(10)
    with monkeypatch.context() as patch:
        patch.setattr(intake, "_write", lambda batch: exit())
        put(intake, a_run("one", 1))
        with pytest.raises(StoreError, match="SystemExit"):
            intake.do(lambda: None).result(10)
    put(intake, a_run("two", 1))
    assert intake.do(store.run_count).result(10) == 1
    assert store.counts["events_lost"] == 3
    assert intake.close(10)


def test_a_thread_that_cannot_be_started_is_tried_again(start, monkeypatch):
    intake, store = start()
    monkeypatch.setattr(module.threading.Thread, "start", lambda thread: 1 / 0)
    put(intake, a_run("one"))
    monkeypatch.undo()
    put(intake, a_run("two"))
    intake.do(lambda: None).result(10)
    assert store.run("two") == a_run("two")


def test_disk_that_fails_and_works_again_gets_all_that_waited_once(start, tmp_path, caplog):
    intake, store = start(DeadDisk(tmp_path / "s.db"))
    for number in range(200):
        put(intake, a_run(f"r{number}"))
    eventually(lambda: store.attempts > 1)
    assert [record.message.count("takes") for record in caplog.records].count(0) == 1, "said once"
    store.mended = True
    intake.do(lambda: None).result(10)
    assert [run.id for run in store.runs()] == [f"r{number}" for number in range(200)]
    assert store.run("r7") == a_run("r7")
    assert (store.counts["events_lost"], store.counts["outages"]) == (0, 1)
    assert "the disk can be written again" in caplog.text


def test_disk_that_fails_beyond_the_bound_drops_the_oldest_and_marks_their_runs(start, tmp_path):
    intake, store = start(DeadDisk(tmp_path / "s.db"), queue_size=200)
    put(intake, a_run("held", steps=0))
    eventually(lambda: store.attempts)
    runs = many(intake, 100)
    store.mended = True
    intake.do(lambda: None).result(10)
    lost = {run.id: run.metadata.get(LOST, 0) for run in store.runs()}
    assert lost["r99"] == lost["held"] == 0
    assert sum(lost.values()) + 5 * (len(runs) + 1 - len(lost)) == store.counts["events_lost"] > 100


def test_disk_that_fails_until_the_end_loses_and_counts_what_waited(start, tmp_path, caplog):
    intake, store = start(DeadDisk(tmp_path / "s.db"))
    for number in range(100):
        put(intake, a_run(f"r{number}"))
    assert intake.close(10)
    assert store.counts["events_lost"] == 400
    assert "could not be written until the end" in caplog.text


HUNDRED_THOUSAND = """
import resource, sys
from ragguard.capture.events import RunStarted, StepEnded
from ragguard.runtime.faults import Faults
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.service.intake import Intake
from ragguard.service.configuration import Configuration
from ragguard.storage.sqlite.store import Store

store = Store(sys.argv[1] or None)
intake = Intake(Configuration(queue_size=16), store, faults=Faults())
passages = [Passage(f"passage {number} says something or other", f"p{number}") for number in range(3)]

def run(number):
    id = f"r{number}"
    intake(RunStarted(Run(id, "what?", status="open")))
    for index in range(100):
        intake(StepEnded(RetrievalStep(f"{id}-{index}", id, index, index, "query", passages, passages, 1, 2)))

for number in range(100): run(number)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for number in range(100, 1000): run(number)
intake.do(lambda: None).result(120)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(after - before, store.counts["steps_captured"], store.counts["events_lost"])
"""


def test_a_hundred_thousand_steps_go_through_with_flat_memory(tmp_path):
    done = run_program(HUNDRED_THOUSAND, tmp_path / "s.db")
    grown_kib, steps, lost = map(int, done.stdout.split())
    assert (steps, lost) == (100_000, 0)
    assert grown_kib < 16 * 1024
