"""Kill -9 at any moment: what was acknowledged is there, and every durable step is scored exactly once."""

import json
import random
import signal
import subprocess

from support.program import command, environment, run_program
from support.scripted_pipeline import ListSink, ScriptedPipeline, ScriptedSettings
from support.stored import closed_after

from ragguard.service.configuration import Configuration
from ragguard.service.service import in_each_process

# One process that is warm and never captures itself; each victim is a fork of it, so that fifty
# kills take seconds. A victim writes down every step once it is acknowledged.
NURSERY = """
import asyncio, json, os, signal, sys, threading, time
from ragguard.capture.events import RunStarted, StepEnded, RunEnded
from ragguard.records import Run
from ragguard.service.service import in_each_process
from ragguard.service.configuration import Configuration
from support.runs import a_run, as_events
from support.scripted_pipeline import ScriptedPipeline, ScriptedSettings

path, durability = sys.argv[1:]

class Busy(ScriptedPipeline):
    async def results(self, run, *, priority=10):
        await asyncio.sleep(0.004)
        return await super().results(run, priority=priority)

def victim(number, acknowledged):
    settings = Configuration(scoring=ScriptedSettings(Busy()), store=path, durability=durability, exit_timeout=0)
    service = in_each_process(settings).get()
    for index in range(10_000):
        for event in as_events(a_run(f"v{number}-{index}", steps=3, passages=4)):
            service.intake(event)
            if isinstance(event, StepEnded):
                os.write(acknowledged, (event.step.id + chr(10)).encode())

for line in sys.stdin:
    number, seconds = json.loads(line)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        victim(number, write)
        os._exit(0)
    os.close(write)
    killer = threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))
    with os.fdopen(read) as acknowledgements:
        first = acknowledgements.readline()
        killer.start()
        steps = [first.strip(), *(step.strip() for step in acknowledgements)]
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    print(json.dumps([step for step in steps if step]), flush=True)
"""


def kill(path, durability, times, longest):
    """Kills one victim after another; gives the steps that were acknowledged."""
    rng = random.Random(7)
    acknowledged = []
    with subprocess.Popen(
        command(NURSERY, path, durability), env=environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as nursery:  # fmt: skip
        for number in range(times):
            nursery.stdin.write(json.dumps([number, rng.uniform(0, longest)]) + "\n")
            nursery.stdin.flush()
            acknowledged += json.loads(nursery.stdout.readline())
        nursery.stdin.close()
        assert nursery.wait(30) == 0
    return acknowledged


def resume(path):
    service = in_each_process(Configuration(scoring=ScriptedSettings(), store=path, concurrency=32)).get()
    report = service.flush(120)
    service.close(5)
    return report


def counts(path):
    """How often each durable step was scored."""
    with closed_after(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        steps = dict.fromkeys((row[0] for row in db.execute("SELECT id FROM steps")), 0)
        for (step,) in db.execute("SELECT step_id FROM scores WHERE level = 'step'"):
            steps[step] += 1
        assert db.execute("SELECT count(*) FROM runs WHERE owner IS NOT NULL").fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM failures").fetchone() == (0,)
        astray = "uses < 1 OR digest NOT IN (SELECT digest FROM passages)"
        assert db.execute(f"SELECT count(*) FROM passage_uses WHERE {astray}").fetchone() == (0,)
    return steps


def test_fifty_kills_and_every_durable_step_is_scored_exactly_once(path_in_memory):
    acknowledged = kill(path_in_memory / "s.db", "full", 50, 0.12)
    assert resume(path_in_memory / "s.db")
    found = counts(path_in_memory / "s.db")
    assert len(acknowledged) > 50
    assert set(acknowledged) <= set(found)
    assert set(found.values()) == {1}


def test_fast_durability_loses_nothing_but_the_last_moment(path_in_memory):
    acknowledged = kill(path_in_memory / "s.db", "fast", 10, 0.3)
    assert resume(path_in_memory / "s.db")
    found = counts(path_in_memory / "s.db")
    assert set(found.values()) == {1}
    assert set(acknowledged) & found.keys()
    # What is missing of a victim's steps are its last ones: nothing in between is lost.
    victims = {step.split("-")[0] for step in acknowledged}
    assert len(victims) == 10
    for victim in victims:
        there = [step in found for step in acknowledged if step.split("-")[0] == victim]
        assert there == sorted(there, reverse=True)


def test_a_kill_between_store_and_sink_sends_again(tmp_path):
    code = (
        "import os, sys; from ragguard.service.service import in_each_process\n"
        "from ragguard.service.configuration import Configuration\n"
        "from support.runs import *; from support.scripted_pipeline import *\n"
        "class Deadly(ListSink):\n"
        "    async def submit(self, scored): os.kill(os.getpid(), 9)\n"
        "settings = {'store': sys.argv[1], 'durability': 'full', 'sinks': [Deadly()]}\n"
        "service = in_each_process(Configuration(scoring=ScriptedSettings(), **settings)).get()\n"
        "for event in as_events(a_run()): service.intake(event)\n"
        "service.flush(30)"
    )
    killed = run_program(code, tmp_path / "s.db", check=False)
    assert killed.returncode == -signal.SIGKILL
    sink, pipeline = ListSink(), ScriptedPipeline()
    service = in_each_process(
        Configuration(scoring=ScriptedSettings(pipeline), store=tmp_path / "s.db", sinks=[sink])
    ).get()
    assert service.flush(30)
    service.close(5)
    assert [scored.run.id for scored in sink.got] == ["r1"]
    assert len(sink.got[0].scores) == 3
    assert pipeline.seen == []
