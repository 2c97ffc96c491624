"""Delivery: what a sink that hangs costs the others, the memory and the run."""

import asyncio
import threading
from dataclasses import dataclass, field

import pytest
from support.polling import eventually
from support.runs import a_run, as_events
from support.scripted_pipeline import ListSink

from ragguard.records import ScoredRun
from ragguard.runtime.faults import Faults
from ragguard.service import delivery
from ragguard.service.delivery import SinkDelivery
from ragguard.storage.sqlite.store import Store


@dataclass
class GatedSink(ListSink):
    """Takes a run once `gate` is set, and hangs until then."""

    gate: threading.Event = field(default_factory=threading.Event)
    begun: int = 0

    async def submit(self, scored: ScoredRun) -> None:
        self.begun += 1
        while not self.gate.is_set():
            await asyncio.sleep(0.005)
        await super().submit(scored)


def capture(service, count):
    for index in range(count):
        for event in as_events(a_run(f"r{index}")):
            service.intake(event)


def scored(service):
    return service.store.counts["runs_scored"]


@pytest.mark.parametrize("path", [None, "s.db"])
def test_a_sink_that_hangs_holds_up_neither_scoring_nor_the_other_sinks(make, tmp_path, path):
    bad, good = GatedSink(), ListSink()
    service = make(sinks=[bad, good], path=path and tmp_path / path, concurrency=2)
    capture(service, 40)
    eventually(lambda: len(good.got) == 40 and scored(service) == 40)
    report = service.flush(0.1)
    assert (report.scored, report.delivering) == (40, 40)
    assert bad.begun == 1, "one run at a time"
    bad.gate.set()
    assert service.flush(10)
    assert len(bad.got) == 40


async def test_a_callers_own_run_is_not_held_up_either(make):
    bad, good = GatedSink(), ListSink()
    service = make(sinks=[bad, good])
    for index in range(10):
        assert (await service.scoring.evaluate(a_run(f"r{index}"))).scores
    eventually(lambda: len(good.got) == 10)


def test_a_sink_that_works_but_is_slow_loses_nothing_and_bounds_what_waits(make, monkeypatch):
    monkeypatch.setattr(delivery, "MOST_WAITING", 3)
    slow = GatedSink()
    service = make(sinks=[slow], concurrency=2)
    capture(service, 30)
    eventually(lambda: scored(service) >= 5)
    assert not service.flush(0.2)
    assert scored(service) <= 3 + 2 * 2, "scoring waits for the sink"
    slow.gate.set()
    assert service.flush(10)
    assert len(slow.got) == 30


async def test_runs_beyond_the_bound_of_a_timed_out_sink_are_counted_at_once(monkeypatch):
    monkeypatch.setattr(delivery, "SINK_SECONDS", 0.01)
    monkeypatch.setattr(delivery, "MOST_WAITING", 4)
    store = Store(None)
    sink = GatedSink()
    to = SinkDelivery(sink, store, Faults())
    await to.give(ScoredRun(a_run(), [], []))
    assert (to.lost, to.waiting) == (1, 0)
    monkeypatch.setattr(delivery, "SINK_SECONDS", 60.0)
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            await to.room()
            group.create_task(to.give(ScoredRun(a_run(), [], [])))
            await asyncio.sleep(0)
        assert (to.waiting, to.lost) == (4, 7)
        sink.gate.set()
    assert (len(sink.got), to.lost, store.counts["sink_failures"]) == (4, 7, 7)
    store.close()


def test_runs_that_waited_for_a_sink_at_close_are_delivered_on_reopening(make):
    bad = GatedSink()
    service = make(sinks=[bad])
    capture(service, 20)
    eventually(lambda: scored(service) == 20 and bool(bad.begun))
    assert service.close(0.2).delivering == 20
    good = ListSink()
    again = make(sinks=[good])
    capture(again, 0)
    again.intake.start()
    eventually(lambda: {one.run.id for one in good.got} == {f"r{index}" for index in range(20)})
