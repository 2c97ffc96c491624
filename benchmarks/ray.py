"""Scoring on a Ray cluster of two nodes on this machine: what is lost, what is the same, what it costs.

    python benchmarks/ray.py                  all of it, some fifteen minutes
    python benchmarks/ray.py same kills       some of it; the other figures stay as they were

`same`    scores of one actor without overlap beside `ragguard score -c 1`, of two nodes beside those
`kills`   an actor, a node or the driver is killed at random moments, twenty times; the finished job once more
`pace`    runs a second of one actor, of two, and of one process without Ray; CPU seconds a run of each
`memory`  the driver's memory with sixty times the parts; the memory of an actor over its parts

Runs in the environment that `make test-ray` makes; starts itself there.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.environments import RAY
from support.polling import eventually
from support.program import command, environment
from support.recorded_scorer import Orders

from benchmarks.machine import RESULTS, record
from benchmarks.options import parse, parser

ROOT = Path(__file__).parents[1]
KILLS = 20
RUNS = 600
PAUSE_S = 0.05
"""How long one run takes where actors, nodes and drivers are killed."""


PACE = """
import json, os, resource, sys, time
from pathlib import Path
from benchmarks.ray import Workers, peak_bytes
from ragguard.scale import PartJob, Processes, ScoringSettings, carry_out, prepare
from ragguard_ray import RayActors
from support.recorded_scorer import Orders

told = json.loads(sys.argv[1])
scorers = ["utility"] if told["scorers"] == "utility" else [Orders(Path(told["scorers"])).scorer()]
job = PartJob(scoring=ScoringSettings(scorers=scorers), out=told["out"], concurrency=8)
actors = told["actors"]
executor = RayActors(told["address"], actors=actors) if actors else Processes(1)
prepared = prepare([told["runs"]], job, workers=actors or 1, size=told["size"])
workers, seen = Workers(os.getpid()), []

def on_part(counts):
    seen.append((time.monotonic(), prepared.now.runs, workers.cpu_seconds(), workers.resident_bytes()))

began = time.monotonic()
report = carry_out(prepared, executor, on_part)
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"parts": len(prepared.parts), "runs": report.now.runs, "scores": report.now.scores,
                  "failures": report.now.failures, "elapsed": time.monotonic() - began,
                  "peak": peak_bytes(), "cpu": usage.ru_utime + usage.ru_stime, "seen": seen}))
"""


def peak_bytes() -> int:
    """Returns the largest memory of this process so far; `ru_maxrss` would begin with that of its parent."""
    return 1024 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


class Workers:
    """The processes on this machine that score parts for a driver: actors of Ray, or children of the driver."""

    def __init__(self, driver: int) -> None:
        self._driver = driver
        self._cpu: dict[int, float] = {}

    def cpu_seconds(self) -> float:
        """Returns the CPU time of the processes so far, those that have ended included."""
        tick = os.sysconf("SC_CLK_TCK")
        for pid, fields in self._stats():
            self._cpu[pid] = (int(fields[11]) + int(fields[12])) / tick
        return sum(self._cpu.values())

    def resident_bytes(self) -> int:
        """Returns the memory of the largest process."""
        page = os.sysconf("SC_PAGE_SIZE")
        return max((int(fields[21]) * page for _, fields in self._stats()), default=0)

    def _stats(self) -> Iterator[tuple[int, list[str]]]:
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, IndexError):
                name = (folder / "cmdline").read_bytes()
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if name.startswith(b"ray::PartActor") or (
                    int(fields[1]) == self._driver and b"spawn_main" in name
                ):
                    yield int(folder.name), fields


def program(code: str, told: dict[str, Any]) -> dict[str, Any]:
    """Runs a program to its end and returns what it printed last."""
    done = subprocess.run(
        command(code, json.dumps(told)),
        env=environment(),
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def same(cluster: Any, folder: Path, kills: int) -> dict[str, Any]:
    """The scores of actors beside those of `ragguard score -c 1`, for all families of scorers."""
    from ragguard.storage.files.runfile import write_runs
    from tests.on_ray.conftest import made
    from tests.on_ray.scored import in_parts, in_store, score

    runs, families = folder / "same.jsonl", "belief,utility,coverage,grades"
    write_runs(made(40), runs)
    common = (runs, "--scorers", families)
    score(*common, "--store", folder / "same.db", "-c", 1)
    score(*common, "--on", "ray:1", "-c", 1, "--out", folder / "same-one", address=cluster.address)
    score(*common, "--on", "ray:2", "--out", folder / "same-two", address=cluster.address)
    alone, one, two = (
        in_store(folder / "same.db"),
        in_parts(folder / "same-one"),
        in_parts(folder / "same-two"),
    )
    return {
        "scores": len(alone),
        "one_actor_bit_for_bit": one == alone,
        "two_actors_same_keys": two.keys() == alone.keys(),
        "two_actors_largest_difference": max(abs(two[key][0] - alone[key][0]) for key in alone),
        "targets": {"two_actors_largest_difference": 5e-5},
    }


def killing(cluster: Any, folder: Path, kills: int) -> dict[str, Any]:
    """Kills an actor, a node or the driver in turn, each time after a random number of runs."""
    from tests.on_ray.conftest import Drivers, made

    draw, rounds = random.Random(7), list[dict[str, Any]]()
    everything = sorted(run.id for run in made(RUNS))
    for number in range(kills):
        target = ("actor", "node", "driver", "actor")[number % 4]
        (here := folder / f"kill-{number}").mkdir()
        drivers = Drivers(cluster, here, runs=RUNS, size=60_000)
        (drivers.orders.folder / "pause").write_text(str(PAUSE_S))
        after = draw.randrange(1, RUNS - 60)
        driver = drivers.start()
        eventually(lambda: sum(drivers.orders.scored().values()) >= after, 120)  # noqa: B023
        if target == "driver":
            driver.kill()
            driver.communicate()
            drivers.run()
        else:
            if target == "actor":
                with suppress(ProcessLookupError):
                    os.kill(draw.choice(drivers.orders.pids()), signal.SIGKILL)
            else:
                cluster.kill_node(cluster.workers[0])
            drivers.finish(driver)
        if target == "node":
            cluster.add_node()
        scored, largest = drivers.rows(), max(part.totals.runs for part in drivers.counts())
        rounds.append({
            "killed": target, "after_runs": after, "lost": len(set(everything) - set(scored)),
            "twice": len(scored) - len(set(scored)), "failures": sum(len(one.failures) for one in drivers.scored()),
            "asked_again": drivers.again(), "at_most": largest * (2 if target == "driver" else 1),
        })  # fmt: skip
    before = drivers.orders.scored()
    drivers.address = "127.0.0.1:9"
    drivers.run()
    return {
        "rounds": len(rounds), "runs_a_round": RUNS,
        **{name: sum(one[name] for one in rounds) for name in ("lost", "twice", "failures", "asked_again")},
        "asked_again_over_the_bound": sum(one["asked_again"] > one["at_most"] for one in rounds),
        "finished_job_asked": sum((drivers.orders.scored() - before).values()),
        "each": rounds,
    }  # fmt: skip


def pace(cluster: Any, folder: Path, kills: int) -> dict[str, Any]:
    """Runs a second between the first part that is complete and the last one, and CPU seconds a run of all processes
    that score, of one process without Ray, of one actor and of two."""
    from ragguard.storage.files.runfile import write_runs
    from tests.on_ray.conftest import made

    runs = folder / "pace.jsonl"
    write_runs(made(1200), runs)
    found = {}
    for name, actors in (("process", 0), ("one_actor", 1), ("two_actors", 2)):
        told = {"runs": str(runs), "out": str(folder / f"pace-{name}"), "scorers": "utility", "actors": actors,
                "address": cluster.address, "size": 64_000}  # fmt: skip
        done = program(PACE, told)
        (began, first, cpu, _), (ended, last, spent, _) = done["seen"][0], done["seen"][-1]
        found[name] = {
            "parts": done["parts"], "runs": done["runs"], "failures": done["failures"],
            "seconds_with_start": round(done["elapsed"], 1),
            "runs_a_second": round((last - first) / (ended - began), 1),
            "cpu_ms_a_run": round(1000 * (spent - cpu) / (last - first), 2),
        }  # fmt: skip
    one, two, alone = found["one_actor"], found["two_actors"], found["process"]
    return {
        **found,
        "two_actors_to_one": round(two["runs_a_second"] / one["runs_a_second"], 2),
        "cpu_of_actor_to_process": round(one["cpu_ms_a_run"] / alone["cpu_ms_a_run"], 2),
        "targets": {"two_actors_to_one": 1.6, "cpu_of_actor_to_process": 1.2},
    }


def memory(cluster: Any, folder: Path, kills: int) -> dict[str, Any]:
    """The driver's largest memory with twenty parts and with sixty times as many, and an actor's over these."""
    from ragguard.storage.files.runfile import write_runs
    from tests.on_ray.conftest import made

    runs = folder / "memory.jsonl"
    write_runs(made(40), runs)
    line = max(map(len, runs.read_text().splitlines()))
    found: dict[str, Any] = {}
    for name, times in (("few", 1), ("many", 60)):
        (here := folder / f"memory-{name}").mkdir()
        source = here / "runs.jsonl"
        source.write_text(
            "".join(runs.read_text().replace('"run-', f'"run-{number}-') for number in range(times))
        )
        Orders(here / "orders")
        told = {"runs": str(source), "out": str(here / "out"), "scorers": str(here / "orders"), "actors": 1,
                "address": cluster.address, "size": 2 * line}  # fmt: skip
        done = program(PACE, told)
        resident = [bytes for *_, bytes in done["seen"]]
        span = done["seen"][-1][0] - done["seen"][0][0]
        found[name] = {
            "parts": done["parts"], "driver_mib": round(done["peak"] / 2**20, 1),
            "driver_cpu_s": round(done["cpu"], 2),
            "actor_mib_after_a_tenth": round(resident[len(resident) // 10] / 2**20, 1),
            "actor_mib_at_the_end": round(resident[-1] / 2**20, 1),
            "ms_a_part": round(1000 * span / max(1, done["parts"] - 1), 1),
        }  # fmt: skip
    few, many = found["few"], found["many"]
    return {
        **found,
        "driver_many_to_few": round(many["driver_mib"] / few["driver_mib"], 2),
        "actor_end_to_begin": round(many["actor_mib_at_the_end"] / many["actor_mib_after_a_tenth"], 2),
        "targets": {"driver_many_to_few": 1.2, "actor_end_to_begin": 1.05},
    }


PARTS: dict[str, Callable[[Any, Path, int], dict[str, Any]]] = {
    "same": same, "kills": killing, "pace": pace, "memory": memory,
}  # fmt: skip


def main() -> None:
    """Measures, prints and records; in the environment of Ray, where this is started again."""
    options = parser(__doc__)
    options.add_argument("parts", nargs="*", default=[], help=f"some of {', '.join(PARTS)}; none: all")
    options.add_argument("--kills", type=int, default=KILLS)
    chosen = parse(options, parts=["same"], kills=1)
    if __spec__ is None or Path(sys.prefix) != RAY.home:  # a script finds itself as `ray`
        os.chdir(ROOT)
        python = str(RAY.install())
        os.execve(python, [python, "-m", "benchmarks.ray", *sys.argv[1:]], environment())
    from support.ray_cluster import ray_cluster

    path = RESULTS / "ray.json"
    figures: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    with ray_cluster() as cluster, tempfile.TemporaryDirectory(prefix="ragguard-ray-") as folder:
        for name in chosen.parts or PARTS:
            load = os.getloadavg()[0]
            found = PARTS[name](cluster, Path(folder), chosen.kills)
            figures[name] = {"load_before": round(load, 2), **found}
            print(json.dumps({name: figures[name]}, indent=2), flush=True)
            record("ray", {name: value for name, value in figures.items() if name in PARTS})


if __name__ == "__main__":
    main()
