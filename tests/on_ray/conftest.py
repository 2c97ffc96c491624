"""One real Ray cluster of two nodes for all tests of this folder, and drivers that are processes of their own."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support.parts import scored_in
from support.program import command, environment
from support.ray_cluster import RayCluster, ray_cluster
from support.recorded_scorer import Orders

from ragguard import world
from ragguard.records import Run, ScoredRun
from ragguard.storage.files.partfolder import PartCounts, PartFolder
from ragguard.storage.files.runfile import write_runs

DRIVER = """
import json, sys
from support.recorded_scorer import Orders
from pathlib import Path
from ragguard.scale import PartJob, ScoringSettings, carry_out, prepare
from ragguard_ray import RayActors

told = json.loads(sys.argv[1])
if told["engine"]:
    scoring = ScoringSettings(engine=told["engine"], scorers=["utility"])
else:
    scoring = ScoringSettings(scorers=[Orders(Path(told["orders"])).scorer()])
job = PartJob(scoring=scoring, out=told["out"], **told["job"])
prepared = prepare([told["runs"]], job, workers=2, size=told["size"])
report = carry_out(prepared, RayActors(told["address"]))
print(json.dumps({"runs": report.now.runs, "failures": report.now.failures, "before": report.before.runs,
                  "lost": report.lost}))
"""


@dataclass
class Drivers:
    """Starts programs that have the runs of a folder scored on the cluster, by a scorer that records what it does."""

    cluster: RayCluster
    folder: Path
    runs: int = 60
    engine: str = ""
    """The address of an engine, which is then asked for utility in place of the scorer that records."""
    size: int = 25_000
    """About how many bytes a part has."""
    job: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.address = self.cluster.address
        self.orders = Orders(self.folder / "orders")
        self.inputs, self.out = str(self.folder / "runs.jsonl"), str(self.folder / "out")
        write_runs(made(self.runs), self.folder / "runs.jsonl")

    def start(self) -> subprocess.Popen[str]:
        """Starts a driver."""
        told = {
            "address": self.address, "runs": self.inputs, "out": self.out,
            "orders": str(self.orders.folder), "engine": self.engine, "size": self.size,
            "job": {"concurrency": 2, **self.job},
        }  # fmt: skip
        return subprocess.Popen(
            command(DRIVER, json.dumps(told)), env=environment(), text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
            # A shell has programs in the background ignore the interrupt.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip

    def finish(self, driver: subprocess.Popen[str], code: int = 0) -> tuple[dict[str, Any], str]:
        """Waits for a driver that ends with this code; returns what it reported, and what it said of faults."""
        try:
            said, told = driver.communicate(timeout=250)
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.communicate()
            raise
        assert driver.returncode == code, told
        return json.loads(said.splitlines()[-1]) if said and not code else {}, told

    def run(self) -> dict[str, Any]:
        """Has everything scored that is left."""
        return self.finish(self.start())[0]

    def scored(self) -> list[ScoredRun]:
        """Returns the scored runs of the complete parts."""
        folder = PartFolder(self.out)
        return scored_in(folder) if folder.settings() else []

    def rows(self) -> list[str]:
        """Returns the run id of each score, those by words left out."""
        scores = [score for scored in self.scored() for score in scored.scores]
        return [score.run_id for score in scores if score.scorer != "words"]

    def counts(self) -> list[PartCounts]:
        """Returns the counts of the complete parts."""
        folder = PartFolder(self.out)
        return [*map(folder.counts, folder.finished())]

    def all_once(self) -> bool:
        """Returns whether each run has one score."""
        return sorted(self.rows()) == sorted(run.id for run in made(self.runs))

    def again(self) -> int:
        """Returns how often runs were scored beyond once each."""
        return sum(count - 1 for count in self.orders.scored().values())


def made(count: int) -> list[Run]:
    """Returns runs of nano's world with ids that are the same in every call."""
    return [replace(run, id=f"run-{number:04}") for number, run in enumerate(_cases(count))]


def _cases(count: int) -> list[Run]:
    return [world.make_run(case, seed=1) for case in world.cases(count, seed=5, hops=2)]


@pytest.fixture(scope="session")
def cluster() -> Iterator[RayCluster]:
    """The cluster."""
    with ray_cluster() as found:
        yield found


@pytest.fixture
def drivers(cluster: RayCluster, tmp_path: Path) -> Drivers:
    """Sixty runs in some twenty parts, none scored."""
    return Drivers(cluster, tmp_path)
