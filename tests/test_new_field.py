"""A field that is added to a record class, and nowhere else, is checked, written and read wherever records go."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ragguard

PACKAGE = Path(ragguard.__file__).parent
ADDED = {
    '    """The retriever\'s own score, in the retriever\'s own unit."""\n': '    language: str = ""\n',
    '    """The latest advice that was given after the step."""\n': "    cost: float | None = None\n",
    '    """All graded passages of the question, where they are known."""\n': '    tenant: str = ""\n',
    '    """The 1-based rank of the passage among the step\'s candidates."""\n': "    votes: int = 0\n",
}
PROGRAM = """
from dataclasses import replace
from ragguard import Passage, RagGuard, RetrievalStep, Run, Score, ScoredRun
from ragguard import read_runs, read_scored, write_runs, write_scores
from ragguard.capture.events import OneStepRun
from ragguard.errors import InvalidInput
from ragguard.schema import UNREADABLE
from ragguard.service.batches import storable_event
from ragguard.storage.sqlite.store import Store

step = RetrievalStep("s", query="hop", passages=[Passage("a", language="no")], cost=0.5)
run = Run("r", "who?", steps=[step], tenant="acme")

def refused(change, path):
    try:
        write_runs([change], "wrong.jsonl")
    except InvalidInput as error:
        assert error.argument == path, error
    else:
        raise AssertionError(path)

refused(replace(run, tenant=5), "run.tenant")
refused(replace(run, steps=[replace(step, cost="much")]), "run.steps[0].cost")
refused(replace(run, steps=[replace(step, passages=[Passage("a", language=5)])]), "run.steps[0].passages[0].language")

write_runs([run], "runs.jsonl")
(read,) = read_runs("runs.jsonl")
assert (read.tenant, read.steps[0].cost, read.steps[0].passages[0].language) == ("acme", 0.5, "no")

write_scores([ScoredRun(run, [Score("utility", 0.5, "run", "r", votes=3)])], "scores.jsonl")
((scored),) = read_scored("scores.jsonl")
assert scored.scores[0].votes == 3

event = storable_event(OneStepRun(replace(run, steps=[], tenant=None), replace(step, run_id="r", cost="much")))
assert (event.run.tenant, event.step.cost) == ("", None)
assert event.step.metadata[UNREADABLE] == "not kept: cost: str"

store = Store("s.db")
store.record([OneStepRun(replace(run, steps=[]), replace(step, run_id="r"))])
stored = store.run("r")
assert (stored.tenant, stored.steps[0].cost, stored.steps[0].passages[0].language) == ("acme", 0.5, "no")
store.close()
print("done")
"""


def test_field_added_to_a_record_class_is_checked_written_and_read_everywhere(tmp_path):
    package = tmp_path / "ragguard"
    package.mkdir()
    for child in PACKAGE.iterdir():
        if child.name not in ("records.py", "__pycache__"):
            (package / child.name).symlink_to(child)
    source = (PACKAGE / "records.py").read_text()
    for before, field in ADDED.items():
        assert source.count(before) == 1, before
        source = source.replace(before, before + field)
    (package / "records.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
