"""`ragguard score --on ray` on a real cluster: the numbers of one process, exit codes, one sentence."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

import pytest
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer

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
    score(alone / "runs.jsonl", "--on", "ray", "--address", cluster.address, "--actors", "1", "-c", 1, "--out", out,
          "--scorers", "utility")  # fmt: skip
    assert in_parts(out) == in_store(alone / "alone.db")


@pytest.fixture(scope="module")
def on_two_nodes(alone, cluster):
    """The same runs, scored on both nodes."""
    out = alone / "two"
    said = score(
        alone / "runs.jsonl", "--on", "ray", "--address", cluster.address, "--actors", "2", "--out", out, "--scorers",
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
        assert sum(part.totals.runs for part in complete) < drivers.runs
        assert not any(part.totals.failures for part in complete)
        await server.start()
        report = await asyncio.to_thread(drivers.run)
        assert report["before"] == sum(part.totals.runs for part in complete)
        assert report["before"] + report["runs"] == drivers.runs
        assert report["failures"] == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--address", "127.0.0.1:9"), "HOST:PORT of the head of a Ray cluster"),
        (("--engine", "http://127.0.0.1:9/v1"), "127.0.0.1:9"),
    ],
)
def test_impossible_option_is_one_sentence_and_nothing_is_written(
    alone, cluster, tmp_path, options, sentence
):
    address = () if "--address" in options else ("--address", cluster.address)
    said = score(alone / "runs.jsonl", "--on", "ray", *address, "--out", tmp_path / "out", *options, code=2)
    assert sentence in said
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("ragguard score: ")
    assert said.count("\n") <= 2  # an engine that does not answer is warned about as well
    assert not (tmp_path / "out").exists()
