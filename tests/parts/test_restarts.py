"""A server of models that is killed and started again while several processes score: no score fails."""

import subprocess

import pytest
from support.model_process import ModelProcess
from support.polling import eventually
from support.program import command, environment

from ragguard import world
from ragguard.parts import PartFolder
from ragguard.storage.files.runfile import write_runs

pytestmark = pytest.mark.slow
RUNS = 200


@pytest.fixture
def server():
    process = ModelProcess()
    yield process
    process.kill()


def test_a_server_that_is_killed_and_started_again_costs_no_score(server, tmp_path):
    """Twice: at once, and after a while, in which the processes wait for the server."""
    write_runs((world.make_run(case, seed=3) for case in world.cases(RUNS, seed=3)), tmp_path / "runs.jsonl")
    out = tmp_path / "out"
    folder = PartFolder(out)
    words = ("score", tmp_path / "runs.jsonl", "--engine", server.url, "--scorers", "utility", "--on", "processes:2",
             "--out", out)  # fmt: skip
    job = subprocess.Popen(
        command("from ragguard.cli import main; main()", *words),
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        eventually(lambda: job.poll() is not None or folder.finished(), 60)
        server.kill()
        server.start()
        before = len(folder.finished())
        eventually(lambda: job.poll() is not None or len(folder.finished()) > before, 60)
        server.kill()
        said = job.stderr.readline()
        assert "an engine does not answer" in said
        assert job.poll() is None
        written = {path: path.stat().st_mtime_ns for path in (out / "parts").iterdir()}
        server.start()
        _, told = job.communicate(timeout=120)
    finally:
        job.kill()
        job.wait()
    assert job.returncode == 0, told
    assert f"{RUNS} runs are in" in told
    counts = [*map(folder.counts, folder.finished())]
    assert sum(part.totals.runs for part in counts) == RUNS
    assert not any(part.totals.failures for part in counts)
    assert all(
        path.stat().st_mtime_ns == at for path, at in written.items()
    )  # what was complete was not asked again
