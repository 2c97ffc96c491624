"""How large an event is taken to be: near the truth for texts, and never without an end."""

from dataclasses import replace

import numpy as np
from langchain_core.documents import Document
from support.runs import a_step

from ragguard.capture.events import RunEnded, RunStarted, StepEnded
from ragguard.capture.open_runs import WholeRun
from ragguard.capture.recorder import Recorder
from ragguard.records import Passage, Run
from ragguard.service.queue import EVENT, size_of


def step_of(*passages):
    return StepEnded(replace(a_step("r"), passages=list(passages)))


def test_texts_count_in_full_also_outside_of_ascii():
    assert 200_000 <= size_of(step_of(*(Passage("x" * 10_000) for _ in range(20)))) <= 205_000
    assert 400_000 <= size_of(step_of(*(Passage("ж" * 10_000) for _ in range(20)))) <= 405_000
    assert 100_000 <= size_of(RunEnded("r", "ok", "x" * 100_000)) <= 102_000
    assert 100_000 <= size_of(step_of(Passage("", metadata={"table": ["x" * 1000] * 100}))) <= 110_000


def test_size_of_a_framework_result_counts_before_it_is_unpacked():
    found = [Document("x" * 10_000, metadata={"page": number}) for number in range(20)]
    assert 200_000 <= size_of(WholeRun("r", "who?", started_ns=1, ended_ns=2, found=found)) <= 240_000
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
