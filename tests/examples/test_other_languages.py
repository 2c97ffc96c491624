"""The examples in JavaScript and for curl, against a real `ragguard serve`."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.polling import eventually
from support.served import served

from ragguard.storage.sqlite.reader import StoreReader

FOLDER = Path(__file__).parents[2] / "examples/other_languages"


@pytest.mark.parametrize(("program", "file"), [("node", "agent.mjs"), ("sh", "trace.sh")])
def test_an_agent_in_another_language_is_scored(tmp_path, program, file):
    needed = {"node": "node", "sh": "curl"}[program]
    if shutil.which(needed) is None:
        pytest.skip(f"NO {needed} HERE: apt-get install {'nodejs' if needed == 'node' else needed}")
    with served(tmp_path, "--settle", "0", "--budget-ms", "60000", RAGGUARD_TOKEN="s3cret") as service:
        done = subprocess.run(
            [program, FOLDER / file], capture_output=True, text=True, timeout=120,
            env={**os.environ, "RAGGUARD_URL": service.url, "RAGGUARD_TOKEN": "s3cret"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

        def scored():
            with_scores = [one for one in store.scored_runs() if one.scores]
            return with_scores and with_scores[0].run

        store = eventually(lambda: (tmp_path / "r.db").exists() and StoreReader(tmp_path / "r.db"))
        run = eventually(scored, 60)
        store.close()
    assert run.question == "Who founded Corwell Mills?"
    assert run.answer == "Ursula Almberg"
    assert [passage.text for step in run.steps for passage in step.passages][-1].endswith("Ursula Almberg.")
    if program == "node":
        assert "guard: " in done.stdout
        assert "advice: " in done.stdout
        assert run.metadata["feedback"]["thumb"] == "up"
