"""Short programs that capture and score runs while the n-th call goes wrong, for every n.

    programs.py PROGRAM KIND TIMES DURABILITY FOLDER

After each: what was captured is stored, or counted as lost, and the counts agree with what is there. Prints JSON: at
how many points it went wrong, and what was not right.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path

from support.runs import a_run, as_events, scores_of
from support.scripted_pipeline import ScriptedPipeline, ScriptedSettings
from support.stored import store_scores

from ragguard.capture.events import Event, RunEnded, RunStarted, StepEnded
from ragguard.errors import StoreUnavailable
from ragguard.records import Run
from ragguard.runtime.circuit_breaker import RetrySchedule
from ragguard.service.configuration import Configuration
from ragguard.service.service import in_each_process
from ragguard.storage.sqlite import layout
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.storage.sqlite.rows import EventBatch
from ragguard.storage.sqlite.store import Store
from tests.faults.injection import MARK, Injection

INJECTION = Injection()
RUNS = [a_run(f"r{number}", steps=1, passages=2) for number in range(4)]


def words(event: Event) -> str:
    """One captured event, by what it says."""
    match event:
        case RunStarted():
            return f"{event.run.id} began"
        case StepEnded():
            return f"{event.step.run_id} {event.step.id}"
        case RunEnded():
            return f"{event.run_id} ended"
    raise AssertionError(event)


def words_in(path: Path) -> set[str]:
    """The events that a store has, in whole runs that are as they were captured."""
    found: set[str] = set()
    if not path.exists():
        return found
    store = Store(path)
    whole = {run.id: run for run in RUNS}
    for run in store.runs():
        if run.question:
            found.add(f"{run.id} began")
        if run.status == "ok":
            found.add(f"{run.id} ended")
        steps = {step.id: step for step in whole[run.id].steps}
        found |= {f"{run.id} {step.id}" for step in run.steps if step == steps[step.id]}
    store.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return found


class Writer:
    """Writes events as the writer's thread does: what the disk does not take waits and is written first."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.waiting: list[EventBatch] = []

    def record(self, events: list[Event]) -> bool:
        """Returns whether all that was captured so far is written."""
        self.waiting.append(self.store.prepare(events))
        return self.write()

    def write(self) -> bool:
        """Writes what waits, up to the first failure."""
        with suppress(StoreUnavailable):
            while self.waiting:
                self.store.write(self.waiting[0])
                del self.waiting[0]
        return not self.waiting


def judged(path: Path, kind: str, captured: set[str], scored: set[str], lost: int) -> str:
    """What is wrong with a store after its program has ended; "" where all is well.

    What a failed sync has left on the disk may be there or not, so it may be counted as lost and yet be there.
    """
    there = words_in(path)
    if len(captured - there) > lost:
        return f"{sorted(captured - there)} are neither stored nor counted; counted: {lost}"
    if there - captured:
        return f"{sorted(there - captured)} were never captured"
    if lost > len(captured - there) and kind != "sync":
        return f"{lost} were counted as lost; missing: {sorted(captured - there)}"
    if path.exists():
        store = Store(path)
        store.housekeep()
        waiting = {claim.run.id for claim in store.claim(99)[0]}
        for id in scored:
            if f"{id} ended" in there and not store.scores(id) and id not in waiting:
                return f"{id} was scored; now its scores are not there, and nobody will score it"
        store.close()
    return ""


def at_store(path: Path, kind: str, n: int, times: int, durability: str) -> tuple[bool, str]:
    """The store alone: three runs while calls go wrong, one after. Returns whether the n-th call was reached."""
    store = Store(path, durability=durability)  # type: ignore[arg-type]
    writer, captured, scored = Writer(store), set[str](), set[str]()

    def capture(run: Run) -> None:
        for events in (as_events(run)[:-1], as_events(run)[-1:]):
            writer.record(events)
            captured.update(map(words, events))
        with suppress(Exception):
            store_scores(store, run, scores_of(run))
            scored.add(run.id)

    with INJECTION.armed(kind, n, times):
        for run in RUNS[:3]:
            capture(run)
        with suppress(Exception):
            store.housekeep()
        reached = INJECTION.count(kind) >= n
    capture(RUNS[3])
    waiting = len(writer.waiting)
    store.close()
    if waiting:
        return reached, f"{waiting} batches wait though the disk works again"
    return reached, judged(path, kind, captured, scored, store.counts["events_refused"])


def at_service(path: Path, kind: str, n: int, times: int, durability: str) -> tuple[bool, str]:
    """All of it: captured by hooks, written and scored in threads; what `close` reports agrees with what is there."""
    pipeline = ScriptedPipeline()
    settings = Configuration(
        scoring=ScriptedSettings(pipeline), store=path, durability=durability,  # type: ignore[arg-type]
        retry=RetrySchedule(3, 0.01, 0.02), tick_seconds=0.01,
    )  # fmt: skip
    service = in_each_process(settings).get()
    captured: set[str] = set()
    with INJECTION.armed(kind, n, times):
        for run in RUNS[:3]:
            for event in as_events(run):
                service.intake(event)
                captured.add(words(event))
        service.flush(0.3)
        reached = INJECTION.count(kind) >= n
    for event in as_events(RUNS[3]):
        service.intake(event)
        captured.add(words(event))
    report = service.flush(10)
    last = service.close(5)
    problem = judged(path, kind, captured, set(), last.lost)
    if not problem and not last.lost:
        store = StoreReader(path)
        unscored = [run.id for run in store.runs() if not store.scores(run.id)]
        store.close()
        if unscored and (report or last):
            problem = f"the report says {last}; without scores: {unscored}"
    if not problem and last.captured != len(RUNS):
        problem = f"{last.captured} runs were counted as captured"
    return reached, problem


PROGRAMS = {one.__name__: one for one in (at_store, at_service)}


def main(program: str, kind: str, times: int, durability: str, folder: Path, stride: int) -> None:
    """Runs the program for every n until it ends before its n-th call."""
    logging.getLogger("ragguard").setLevel(logging.CRITICAL + 1)
    layout.PATIENCE = 0.5
    if kind == "memory" and not INJECTION.sees_sqlite:
        print(json.dumps({"points": 0, "problems": [], "unseen": True}))
        return
    problems, n, points = [], 1, 0
    while True:
        place = folder / f"{MARK}-{n}"
        place.mkdir()
        reached, problem = PROGRAMS[program](place / "s.db", kind, n, times, durability)
        shutil.rmtree(place)
        if problem:
            problems.append(f"at {kind} {n}: {problem}")
        if not reached or len(problems) > 5:
            break
        n, points = n + stride, points + 1
    print(json.dumps({"points": points, "problems": problems}))


if __name__ == "__main__":
    name, what, how_often, durable, where, step = sys.argv[1:]
    asyncio.set_event_loop_policy(None)
    main(name, what, int(how_often), durable, Path(where), int(step))
