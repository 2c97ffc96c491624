"""Events of any types on their way to the disk: fields that a store takes, and sizes by which the queue is bounded."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from langchain_core.documents import Document
from support.hostile_values import Unprintable
from support.runs import a_run, a_step, as_events

from ragguard.capture.events import RunEnded, RunStarted, StepEnded
from ragguard.capture.recorder import Recorder
from ragguard.capture.retrievals import WholeRun
from ragguard.records import Passage, Run, SubStep
from ragguard.runtime.faults import Faults
from ragguard.schema import UNREADABLE
from ragguard.service.configuration import Configuration
from ragguard.service.intake import Intake
from ragguard.service.queue import EVENT, size_of
from ragguard.storage.preparation import Redactor
from ragguard.storage.sqlite.store import Store

storable = Redactor(None, Faults()).event


class Custom(BaseException):
    pass


@pytest.fixture
def intake(tmp_path):
    one = Intake(Configuration(), Store(tmp_path / "s.db"), faults=Faults())
    yield one
    one.close(10)


def stored(intake, *events):
    for event in events:
        intake(event)
    intake.do(lambda: None).result(20)
    return intake._store


def test_an_event_whose_fields_have_their_types_is_not_copied():
    for event in as_events(a_run()):
        assert storable(event) is event


def test_integers_of_numpy_are_integers():
    step = replace(a_step("r"), index=np.int64(3), turn=np.int32(2), started_ns=np.int64(5), ended_ns=6.0)
    kept = storable(StepEnded(step)).step
    assert (kept.index, kept.turn, kept.started_ns, kept.ended_ns) == (3, 2, 5, 6)
    assert {type(kept.index), type(kept.ended_ns)} == {int}
    assert kept.metadata == {}


@pytest.mark.parametrize("value", [object(), "soon", 2**80, float("nan"), Unprintable()])
def test_a_field_that_cannot_be_kept_is_named_on_the_record(value):
    kept = storable(StepEnded(replace(a_step("r"), started_ns=value))).step
    assert kept.started_ns == 0
    assert kept.metadata[UNREADABLE] == f"not kept: started_ns: {type(value).__name__}"


BAD = {
    "status": lambda number: RunEnded(f"r{number}", None),
    "started": lambda number: RunStarted(Run(f"r{number}", "who?", started_ns=object())),
    "numpy": lambda number: StepEnded(replace(a_step(f"r{number}"), turn=np.int64(1))),
    "part": lambda number: StepEnded(
        replace(a_step(f"r{number}"), sub_steps=[SubStep("q", started_ns=None)])
    ),
    "printed": lambda number: StepEnded(replace(a_step(f"r{number}"), metadata={"x": Unprintable()})),
    "read": lambda number: StepEnded(lambda: 1 / 0),
    "query": lambda number: StepEnded(replace(a_step(f"r{number}"), query=Unprintable())),
    "id": lambda number: RunStarted(Run(b"\xff", Custom)),
}


@pytest.mark.parametrize("kind", BAD)
def test_one_bad_event_takes_no_other_with_it(intake, kind):
    """All in one batch: the writer is held until they wait together."""
    held = threading.Event()
    intake.do(lambda: held.wait(20))
    events = [event for number in range(40) for event in as_events(a_run(f"r{number}", 1))]
    events.insert(60, BAD[kind](999))
    for event in events:
        intake(event)
    held.set()
    store = stored(intake)
    assert store.counts["events_lost"] == 0
    assert store.counts["events_refused"] <= 1
    for number in range(40):
        assert store.run(f"r{number}") == a_run(f"r{number}", 1)


def test_a_value_that_sqlite_refuses_costs_its_event_alone(intake, monkeypatch):
    """Whatever the check of the fields lets through."""
    monkeypatch.setattr("ragguard.storage.preparation.fitted", lambda record: record)
    bad = StepEnded(replace(a_step("bad"), started_ns=object()))
    store = stored(intake, *as_events(a_run("one")), bad, *as_events(a_run("two")))
    assert store.run("one") == a_run("one")
    assert store.run("two") == a_run("two")
    assert (store.counts["events_refused"], store.counts["events_lost"]) == (1, 0)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, Custom])
def test_a_redaction_that_wants_to_end_the_process_does_not_end_the_writer(tmp_path, error):
    def redact(text):
        if "passage 0" in text:
            raise error
        return text

    redactor = Redactor(redact, Faults())
    intake = Intake(Configuration(), Store(tmp_path / "s.db"), faults=Faults(), redactor=redactor)
    store = stored(intake, *as_events(a_run("one")))
    assert stored(intake, *as_events(a_run("two", 0))).run("two") is not None
    assert [passage.text for passage in store.run("one").steps[0].passages] == ["", "", ""]
    assert intake.close(10)


def step_of(*passages):
    return StepEnded(replace(a_step("r"), passages=list(passages)))


def test_texts_count_in_full_also_outside_of_ascii():
    assert 200_000 <= size_of(step_of(*(Passage("x" * 10_000) for _ in range(20)))) <= 240_000
    assert 400_000 <= size_of(step_of(*(Passage("ж" * 10_000) for _ in range(20)))) <= 480_000
    assert 100_000 <= size_of(RunEnded("r", "ok", "x" * 100_000)) <= 104_000
    assert 100_000 <= size_of(step_of(Passage("", metadata={"table": ["x" * 1000] * 100}))) <= 110_000


def test_size_of_a_framework_result_counts_before_it_is_unpacked():
    found = [Document("x" * 10_000, metadata={"page": number}) for number in range(20)]
    assert 200_000 <= size_of(WholeRun("r", "who?", started_ns=1, ended_ns=2, result=found)) <= 240_000
    taken = []
    recorder = Recorder(taken.append)
    recorder.run_started("r", "who?" * 10_000)
    recorder.step_started("s", "r", "who?")
    recorder.step_ended("s", found, unpack=lambda found: 1 / 0)
    started, step = taken
    assert 40_000 <= size_of(started) <= 42_000
    assert 200_000 <= size_of(step) <= 240_000


def test_a_long_list_is_judged_by_a_sample_and_an_array_by_its_size():
    assert 900_000 <= size_of(step_of(*(Passage("x" * 1000) for _ in range(1000)))) <= 1_200_000
    assert size_of(step_of(Passage("", metadata={"vector": np.zeros(10_000)}))) >= 80_000


def test_a_cycle_and_an_object_that_raises_have_an_end():
    cycle = {}
    cycle["self"] = [cycle, cycle]

    class Raising:
        @property
        def __dict__(self):
            raise RuntimeError("no")

    assert size_of(step_of(Passage("", metadata=cycle))) < 1_000_000
    assert size_of(step_of(Passage("", metadata={"x": Raising()}))) == EVENT
    assert size_of(RunStarted(Run("r"))) >= EVENT
