"""Parts on several processes of this machine, with nano: killed at random, interrupted, and bit for bit the same."""

import dataclasses
import os
import random
import signal
import subprocess
import threading
from contextlib import suppress
from multiprocessing import active_children
from pathlib import Path

import pytest
from support.parts import scores_in
from support.polling import eventually
from support.process_scorers import Deadly
from support.program import command, environment

from ragguard import world, write_runs
from ragguard.errors import WorkerLost
from ragguard.scale import PartFolder, PartJob, Processes, ScoringSettings, carry_out, prepare
from ragguard.scale.part import plan_parts

pytestmark = pytest.mark.slow

UTILITY = ScoringSettings(scorers=("utility",))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of nano's world, in a file."""
    return runs_file(tmp_path_factory.mktemp("runs"), 40)


@pytest.fixture(scope="module")
def many_runs(tmp_path_factory):
    """Runs whose scoring goes on when it is interrupted, also where this process pauses before."""
    return runs_file(tmp_path_factory.mktemp("many"), 200)


def runs_file(folder, count):
    made = [world.make_run(case, seed=3, junk=1) for case in world.cases(count, seed=3)]
    write_runs((dataclasses.replace(run, id=f"r{at}") for at, run in enumerate(made)), folder / "runs.jsonl")
    return folder / "runs.jsonl"


def interruptible():
    """Undoes what a shell does to programs in the background: they would ignore the interrupt."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def our_processes():
    """The processes that score for this one."""
    found = []
    for children in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            pids = children.read_text().split()
            found += [int(pid) for pid in pids if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]
    return found


def score_ids(folder):
    """All that identifies a score, of every score in a folder."""
    return sorted(map(str, (score.key for score in scores_in(folder))))


def ragguard(*words):
    return command("from ragguard.cli import main; main()", *words)


def scoring(runs, out):
    return ragguard("score", runs, "-e", "nano", "--scorers", "utility", "--on", "processes:2", "--out", out)


def test_process_that_is_killed_before_it_has_read_a_large_job_is_a_lost_worker(runs, tmp_path):
    large = PartJob(scoring=UTILITY, out=str(tmp_path / ("x" * 200_000)))
    (part,) = plan_parts([runs], 10**9)
    with Processes(1) as executor:
        worker = executor.worker(large)
        for child in active_children():
            child.kill()
        with pytest.raises(WorkerLost, match="ended with exit code"):
            worker(part)


def test_workers_that_are_killed_at_random_lose_no_score_and_give_none_twice(runs, tmp_path, monkeypatch):
    monkeypatch.setattr("ragguard.scale.job.ATTEMPTS", 1000)
    whole = PartJob(scoring=UTILITY, out=str(tmp_path / "whole"))
    carry_out(prepare([runs], whole, size=4096), Processes(1))
    job = dataclasses.replace(whole, out=str(tmp_path / "killed"))
    prepared = prepare([runs], job, size=4096)
    assert len(prepared.left) > 10
    done, rng, killed = threading.Event(), random.Random(7), []
    parts = tmp_path / "killed" / "parts"

    def kill():
        """Kills a process, six times, at a random moment after another part is complete."""
        seen = 0
        while len(killed) < 6 and not done.is_set():
            complete = len(list(parts.glob("*.json")))
            if complete > seen and not done.wait(rng.uniform(0.0, 0.1)):
                for pid in rng.sample(children := our_processes(), min(1, len(children))):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                seen = complete
            done.wait(0.002)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        report = carry_out(prepared, Processes(2))
    finally:
        done.set()
        killer.join()
    assert len(killed) >= 3
    assert report.whole
    assert report.now.runs == 40
    assert score_ids(job.folder) == score_ids(whole.folder)
    assert len(set(score_ids(job.folder))) == len(score_ids(job.folder))
    assert active_children() == []


def test_process_that_a_run_ends_costs_its_part_alone(runs, tmp_path, monkeypatch):
    """The scorer below ends the process that uses it, as a run that needs too much memory does."""
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    job = PartJob(scoring=ScoringSettings(scorers=(Deadly("r30"),)), out=str(tmp_path / "out"))
    report = carry_out(prepare([runs], job, size=20_000), Processes(2))
    assert 0 < report.now.runs < 40
    assert [lost.partition(": ")[2] for lost in report.lost] == [
        "3 processes were lost with it, the last one ended with exit code 7"
    ]


def test_an_interrupt_ends_all_processes_and_the_same_command_goes_on(many_runs, tmp_path):
    out = tmp_path / "out"
    begun = subprocess.Popen(scoring(many_runs, out), stderr=subprocess.PIPE, text=True, env=environment(),
                             start_new_session=True,
                             preexec_fn=interruptible)  # fmt: skip
    try:
        eventually(lambda: out.exists() and any((out / "parts").glob("*.json")), 60)
        os.killpg(begun.pid, signal.SIGINT)  # as a terminal does: to the command and all its processes
        _, said = begun.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(begun.pid, signal.SIGKILL)
    assert begun.returncode == 130, said
    assert said.strip().startswith("stopped; the parts that are complete stay in")
    assert "Traceback" not in said
    done = subprocess.run(scoring(many_runs, out), capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    assert "200 runs are in" in done.stderr
    assert len(score_ids(PartFolder(out))) == len(set(score_ids(PartFolder(out))))


def test_processes_end_with_a_parent_that_was_killed(runs, tmp_path):
    out = tmp_path / "out"
    begun = subprocess.Popen(
        scoring(runs, out), stderr=subprocess.DEVNULL, env=environment(), start_new_session=True
    )
    try:
        eventually(lambda: out.exists() and any((out / "parts").glob("*.json")), 60)
        os.kill(begun.pid, signal.SIGKILL)
        begun.wait()
        eventually(lambda: not group_lives(begun.pid), 60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(begun.pid, signal.SIGKILL)
    done = subprocess.run(scoring(runs, out), capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    assert "40 runs are in" in done.stderr


def group_lives(group):
    """Whether any process of a group is there that has not ended."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
