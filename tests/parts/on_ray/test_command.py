"""`ragguard score --on ray` on a real cluster: the numbers of one process, exit codes, one sentence."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib.util import find_spec

import pytest
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer
from support.program import environment

from ragguard.store.partfolder import PartFolder
from ragguard.store.runfile import write_runs
from ragguard.store.store import Store
from tests.parts.on_ray.conftest import made

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="NO RAY HERE: run `make test-ray`"),
    pytest.mark.slow,
]


def command(*arguments):
    return [sys.executable, "-c", "from ragguard.cli import main; main()", "score", *map(str, arguments)]


def score(*arguments, code=0):
    done = subprocess.run(
        command(*arguments), env=environment(), capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stderr


KEY = ("run_id", "step_id", "passage_id", "position", "name", "sub_question", "stage", "scorer")
SAID = ("value", "stderr", "expectation", "label", "explanation")


def in_parts(folder):
    """What the scores of a folder say, by their keys."""
    found = PartFolder(folder)
    columns = [*KEY, *SAID]
    rows = [row for batch in found.read("scores", found.finished(), columns) for row in batch.to_pylist()]
    return by_key([row[name] for name in columns] for row in rows)


def in_store(path):
    store = Store(path, read_only=True)
    scores = [score for run in store.runs() for score in store.scores(run.id)]
    store.close()
    return by_key([getattr(score, name) for name in (*KEY, *SAID)] for score in scores)


def by_key(rows):
    rows = [(tuple(row[: len(KEY)]), tuple(row[len(KEY) :])) for row in rows]
    found = dict(rows)
    assert len(found) == len(rows), "a score stands twice"
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Some runs, and their scores by `ragguard score -c 1`."""
    folder = tmp_path_factory.mktemp("alone")
    write_runs(made(40), folder / "runs.jsonl")
    score(folder / "runs.jsonl", "--store", folder / "alone.db", "-c", 1, "--scorers", "utility")
    return folder


def test_one_actor_without_overlap_gives_the_very_scores_of_one_process(alone, cluster):
    out = alone / "one"
    score(alone / "runs.jsonl", "--on", "ray", "--address", cluster.address, "--actors", "1:1", "-c", 1, "--out", out,
          "--scorers", "utility")  # fmt: skip
    assert in_parts(out) == in_store(alone / "alone.db")


@pytest.fixture(scope="module")
def on_two_nodes(alone, cluster):
    """The same runs, scored on both nodes."""
    out = alone / "two"
    said = score(
        alone / "runs.jsonl", "--on", "ray", "--address", cluster.address, "--actors", "2:2", "--out", out, "--scorers",
        "utility",
    )  # fmt: skip
    assert "40 runs are in" in said
    return out


def test_two_nodes_give_the_same_scores(alone, on_two_nodes):
    ours, theirs = in_parts(on_two_nodes), in_store(alone / "alone.db")
    assert ours.keys() == theirs.keys()
    worst = max(abs(ours[key][0] - theirs[key][0]) for key in ours)
    assert worst <= 5e-5


def test_other_settings_are_refused_and_nothing_is_written(alone, on_two_nodes, cluster):
    before = {path: path.stat().st_mtime_ns for path in on_two_nodes.rglob("*")}
    said = score(
        alone / "runs.jsonl", "--on", "ray", "--address", cluster.address, "--out", on_two_nodes, "--scorers", "grades",
        code=2,
    )  # fmt: skip
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
        assert sum(part.runs for part in complete) < drivers.runs
        assert not any(part.failures for part in complete)
        await server.start()
        report = await asyncio.to_thread(drivers.run)
        assert report["before"] == sum(part.runs for part in complete)
        assert report["before"] + report["runs"] == drivers.runs
        assert report["failures"] == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--address", "127.0.0.1:9"), "nothing answers there"),
        (("--engine", "http://127.0.0.1:9/v1"), "127.0.0.1:9"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_nothing_is_written(alone, cluster, tmp_path, options, sentence):
    address = () if "--address" in options else ("--address", cluster.address)
    said = score(alone / "runs.jsonl", "--on", "ray", *address, "--out", tmp_path / "out", *options, code=2)
    assert sentence in said
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("ragguard score: ")
    assert said.count("\n") <= 2  # an engine that does not answer is warned about as well
    assert not (tmp_path / "out").exists()
