"""`ragguard score --on ray` on a real cluster: the numbers of one process, exit codes, one sentence; processes, nodes,
drivers, engines and disks that go away under a job: no score is lost, none stands twice.

A driver takes some seconds to start, so that a test has one job meet several faults.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer
from support.polling import eventually
from support.program import run_program

from ragguard.storage.files.runfile import write_runs
from tests.on_ray.conftest import made
from tests.on_ray.scored import in_parts, in_store, score

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="NO RAY HERE: run `make test-ray`"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Some runs, and their scores by `ragguard score -c 1`."""
    folder = tmp_path_factory.mktemp("alone")
    write_runs(made(40), folder / "runs.jsonl")
    score(folder / "runs.jsonl", "--store", folder / "alone.db", "-c", 1, "--scorers", "utility")
    return folder


def test_one_actor_without_overlap_gives_the_very_scores_of_one_process(alone, cluster):
    out = alone / "one"
    options = ("--on", "ray:1", "-c", 1, "--out", out, "--scorers", "utility")
    score(alone / "runs.jsonl", *options, address=cluster.address)
    assert in_parts(out) == in_store(alone / "alone.db")


@pytest.fixture(scope="module")
def on_two_nodes(alone, cluster):
    """The same runs, scored on both nodes."""
    out = alone / "two"
    options = ("--on", "ray:2", "--out", out, "--scorers", "utility")
    said = score(alone / "runs.jsonl", *options, address=cluster.address)
    assert "40 runs are in" in said
    return out


def test_two_nodes_give_the_same_scores(alone, on_two_nodes):
    ours, theirs = in_parts(on_two_nodes), in_store(alone / "alone.db")
    assert ours.keys() == theirs.keys()
    worst = max(abs(ours[key][0] - theirs[key][0]) for key in ours)
    assert worst <= 5e-5


def test_other_settings_are_refused_and_nothing_is_written(alone, on_two_nodes, cluster):
    before = {path: path.stat().st_mtime_ns for path in on_two_nodes.rglob("*")}
    options = ("--on", "ray", "--out", on_two_nodes, "--scorers", "grades")
    said = score(alone / "runs.jsonl", *options, code=2, address=cluster.address)
    assert before
    assert "other settings" in said
    assert {path: path.stat().st_mtime_ns for path in on_two_nodes.rglob("*")} == before


async def test_a_server_that_goes_away_completes_no_part_and_the_same_goes_on(drivers):
    model, enough = FakeModel(), asyncio.Event()

    def handle(request):
        if len(server.paths("/completions")) > 30:
            enough.set()
        return model.handle(request)

    async with MisbehavingServer(handle) as server:
        drivers.engine, drivers.job["patience_s"] = server.url, 1
        driver = drivers.start()
        await asyncio.wait_for(enough.wait(), 60)
        await server.stop()
        _, told = await asyncio.to_thread(drivers.finish, driver, 1)
        assert "EngineError" in told
        complete = drivers.counts()
        assert sum(part.totals.runs for part in complete) < drivers.runs
        assert not any(part.totals.failures for part in complete)
        await server.start()
        report = await asyncio.to_thread(drivers.run)
        assert report["before"] == sum(part.totals.runs for part in complete)
        assert report["before"] + report["runs"] == drivers.runs
        assert report["failures"] == 0


pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="NO RAY HERE: run `make test-ray`"),
    pytest.mark.slow,
]
RUNS = 60
IN_FLIGHT = 2
"""Two actors work on a part each."""
LARGEST_PART = 10
"""Runs."""


def kill(pid):
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def alive(pid):
    return (
        Path(f"/proc/{pid}/stat").exists()
        and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][1] != "Z"
    )


def held(drivers, processes=2):
    """Starts a driver whose actors wait in the middle of their parts; returns it and the processes of the actors."""
    before = set(drivers.orders.pids())
    drivers.orders.give("hold")
    driver = drivers.start()
    eventually(
        lambda: driver.poll() is not None or len(drivers.orders.pids()) >= len(before) + processes, 100
    )
    assert driver.poll() is None, driver.communicate()
    return driver, [pid for pid in drivers.orders.pids() if pid not in before]


def test_an_actor_is_killed_and_costs_no_score(drivers):
    driver, pids = held(drivers)
    kill(pids[0])
    drivers.orders.take_back("hold")
    report, _ = drivers.finish(driver)
    assert (report["runs"], report["failures"], report["lost"]) == (RUNS, 0, [])
    assert drivers.all_once()
    assert not [failure for scored in drivers.scored() for failure in scored.failures]
    eventually(lambda: not any(map(alive, drivers.orders.pids())), 60)  # no actor is left behind
    assert 0 < drivers.again() <= IN_FLIGHT * LARGEST_PART


def test_a_node_is_killed_then_the_driver_and_what_is_done_is_not_asked_again(drivers, cluster):
    driver, _ = held(drivers)
    cluster.kill_node(cluster.workers[0])
    drivers.orders.take_back("hold")
    eventually(lambda: len(drivers.rows()) >= 10, 100)
    kill(driver.pid)
    driver.communicate()
    cluster.add_node()
    complete, before = set(drivers.rows()), drivers.orders.scored()
    report = drivers.run()
    assert report["before"] >= len(complete)
    assert (report["before"] + report["runs"], report["failures"]) == (RUNS, 0)
    assert drivers.all_once()
    assert not [run for run in complete if drivers.orders.scored()[run] > before[run]]
    assert drivers.again() <= 2 * IN_FLIGHT * LARGEST_PART

    drivers.address = "127.0.0.1:9"  # where no cluster is: a job that is done needs none
    again = drivers.run()
    assert (again["runs"], again["before"]) == (0, RUNS)
    assert sum(drivers.orders.scored().values()) == RUNS + drivers.again()


def test_a_full_disk_is_said_and_ctrl_c_ends_a_job_and_each_time_it_goes_on(drivers):
    drivers.orders.give("full")
    _, told = drivers.finish(drivers.start(), 1)
    assert told.splitlines()[-1].startswith("ragguard.errors.StoreError: ")
    assert "No space left on device" in told
    assert not drivers.rows()
    drivers.orders.take_back("full")

    driver, _ = held(drivers, 1)
    os.kill(driver.pid, signal.SIGINT)
    _, told = drivers.finish(driver, -signal.SIGINT)
    assert "KeyboardInterrupt" in told
    assert not drivers.rows()
    drivers.orders.take_back("hold")

    assert drivers.run()["runs"] == RUNS
    assert drivers.all_once()


def test_an_engine_that_answers_nothing_ends_the_job_and_completes_no_part(drivers):
    drivers.orders.give("gone")
    _, told = drivers.finish(drivers.start(), 1)
    assert "EngineError: no run of a part was answered" in told
    assert not drivers.rows()


AFTER_ITS_END = """
import sys
import ray
from ragguard.errors import WorkerLost
from ragguard.scale import PartJob, ScoringSettings, prepare
from ragguard_ray import RayActors

address, runs, out = sys.argv[1:]
job = PartJob(scoring=ScoringSettings(engine="nano", scorers=["utility"]), out=out)
[part] = prepare([runs], job, size=10**9).left
actors = RayActors(address)
with actors:
    job.folder.begin(job.record, 10**9, {"part": part})
    worker = actors.worker(job)
for call in (lambda: worker(part), lambda: actors.worker(job)):
    try:
        call()
    except WorkerLost as error:
        print(error, ray.is_initialized())
"""


def test_worker_called_after_the_end_of_its_job_is_refused_and_does_not_connect_again(drivers):
    done = run_program(AFTER_ITS_END, drivers.address, drivers.inputs, drivers.out)
    assert done.stdout == "was to go on after the end of its job False\n" * 2
