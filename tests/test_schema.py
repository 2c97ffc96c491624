"""The fields of records: their types and limits, a new one, and what records compute."""

from __future__ import annotations

import json
import math
import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest
from support.commands import ragguard
from support.program import run_program
from support.runs import a_run
from support.scripted_engine import ScriptedEngine

from ragguard import Passage, RagGuard, RetrievalStep, Run, Score
from ragguard.errors import InvalidInput
from ragguard.records import Decision, Dropped, Failure, SubStep, TraceContext, new_id
from ragguard.schema import checked_run
from ragguard.storage.files.runfile import read_runs, write_runs
from ragguard.telemetry.sink import JsonlSink

RUN_FIELDS = {
    "id": (None, b"x", 1.5), "question": (None, 5), "references": ("text", [1], {"a"}), "answer": (5, ["a"]),
    "steps": (None, "s", [None]), "status": (None, "fine"), "metadata": (None, [("a", 1)]),
    "sub_questions": ("q", [None]), "pool": ("p", ["text"], [Passage(None)]), "name": (None, 5),
    "started_ns": (None, "now", 1.5, 2**63), "ended_ns": (None, 2**70), "trace": ("00-1-2", TraceContext("x", "y")),
}  # fmt: skip
STEP_FIELDS = {
    "id": (None,), "run_id": (3.5,), "index": (None, "0"), "turn": (1.5,), "query": (None, ["q"]),
    "passages": (None, "text", ["text"], [Passage("a", None)], [Passage("a", score="0.5")], [Passage("a", grade=9)],
                 [Passage("a", metadata=None)], [Passage("a", score=10**400)]),
    "candidates": ({},), "started_ns": (object(),), "status": ("done",), "tool": (None,),
    "sub_steps": ([SubStep(None)],),
    "error": (ValueError("x"),), "decision": ("pruned", Decision("a"), Decision([], status="odd"),
                 Decision([], [Dropped(Passage("a"), "1", "r")])), "trace": (1,), "metadata": ("m",),
}  # fmt: skip


@pytest.mark.parametrize(("name", "values"), RUN_FIELDS.items(), ids=list(RUN_FIELDS))
def test_a_wrong_field_of_a_run_is_named(name, values, tmp_path):
    for value in values:
        run = a_run()
        setattr(run, name, value)
        with pytest.raises(InvalidInput, match=rf"^run\.{name}"):
            checked_run(run)
        with pytest.raises(InvalidInput, match=rf"^run\.{name}"):
            write_runs([run], tmp_path / "runs.jsonl")


@pytest.mark.parametrize(("name", "values"), STEP_FIELDS.items(), ids=list(STEP_FIELDS))
async def test_a_wrong_field_of_a_step_is_named(name, values, tmp_path):
    rg = RagGuard(ScriptedEngine(), store=tmp_path / "s.db", scorers=("utility",))
    for value in values:
        run = a_run()
        setattr(run.steps[1], name, value)
        with pytest.raises(InvalidInput, match=rf"^run\.steps\[1\]\.{name}"):
            await rg.score(run)
    rg.close()


def test_run_file_round_trip_keeps_every_field(tmp_path):
    path = tmp_path / "runs.jsonl"
    run = a_run()
    run.metadata = {"nul": "\x00", "half": "\ud800", "nan": math.nan, "deep": {"a": [1]}}
    run.steps[0].passages[0].text = "half \udfff and \x00"
    write_runs([run], path)
    (read,) = read_runs(path)
    assert read.metadata == {"nul": "\x00", "half": "\ud800", "nan": None, "deep": {"a": [1]}}
    assert read.steps[0].passages[0].text == "half ? and \x00"


RIGHT = Score("mine", 0.5, "run", "")
WRONG = [
    None, "0.5", replace(RIGHT, value="high"), replace(RIGHT, value=10**400), replace(RIGHT, name=5),
    replace(RIGHT, level="page"), replace(RIGHT, usage=None), replace(RIGHT, metadata=None), replace(RIGHT, stderr="x"),
    replace(RIGHT, position="1"), Failure(None, "E", "m"), Failure("s", "E", ValueError("m")),
]  # fmt: skip


class Mine:
    """A user's scorer that gives what it is told to."""

    name, version, models = "mine", "1", ()

    def __init__(self, gives):
        self._gives = gives

    async def score(self, view, ask):
        return self._gives


@pytest.mark.parametrize("gives", [*([RIGHT, one] for one in WRONG), None, 5], ids=range(len(WRONG) + 2))
async def test_a_wrong_score_is_a_failure_of_its_scorer_alone(gives, tmp_path):
    lines = tmp_path / "scores.jsonl"
    rg = RagGuard(
        ScriptedEngine(label=lambda text, label: 0.4), store=tmp_path / "s.db",
        scorers=("utility", Mine(gives)), sinks=[JsonlSink(lines)],
    )  # fmt: skip
    scores = await rg.score(a_run())
    assert {"utility", "udcg"} <= {score.name for score in scores}
    assert ("mine" in {score.name for score in scores}) is (gives not in (None, 5))
    (failure,) = scores.failures
    assert failure.scorer == "mine"
    rg.close()
    assert {json.loads(line).get("name") for line in lines.read_text().splitlines()} >= {"utility", "udcg"}
    ragguard("report", tmp_path / "s.db", code=0)


PACKAGE = Path(__file__).parents[1] / "ragguard"
ADDED = {
    '    """The retriever\'s own score, in the retriever\'s own unit."""\n': '    language: str = ""\n',
    '    """The latest advice that was given after the step."""\n': "    cost: float | None = None\n",
    '    """All graded passages of the question, if they are known."""\n': '    tenant: str = ""\n',
    '    """The 1-based rank of the passage among the step\'s candidates."""\n': "    votes: int = 0\n",
}
PROGRAM = """
from dataclasses import replace
from ragguard import Passage, RagGuard, RetrievalStep, Run, Score, ScoredRun
from ragguard import read_runs, read_scored, write_runs, write_scores
from ragguard.capture.events import RunStarted, StepEnded
from ragguard.errors import InvalidInput
from ragguard.schema import UNREADABLE
from ragguard.schema import fitted
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

started, ended = fitted(replace(run, steps=[], tenant=None)), fitted(replace(step, run_id="r", cost="much"))
assert (started.tenant, ended.cost) == ("", None)
assert ended.metadata[UNREADABLE] == "not kept: cost: str"

store = Store("s.db")
store.record([RunStarted(replace(run, steps=[])), StepEnded(replace(step, run_id="r"))])
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
    done = run_program(PROGRAM, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert done.stdout == "done\n"


def test_one_reference_is_one_reference():
    run = Run(
        references="East Dundale",
        sub_questions="Where is it?",
        pool="a text",
        steps=RetrievalStep(query="hop"),
    )
    assert (run.references, run.sub_questions, run.pool) == (
        ["East Dundale"],
        ["Where is it?"],
        [Passage("a text")],
    )
    assert [step.query for step in run.steps] == ["hop"]


def test_one_passage_is_one_passage():
    step = RetrievalStep(passages="a text", candidates=Passage("a text", "1"))
    assert (step.passages, step.candidates) == ([Passage("a text")], [Passage("a text", "1")])


def test_lists_and_nothing_stay_what_they_are():
    texts = ["a", "b"]
    run = Run(references=texts)
    assert run.references is texts
    assert (Run().references, Run().steps, RetrievalStep().passages) == (None, [], [])


@pytest.mark.parametrize("field", ["references", "sub_questions"])
def test_one_text_in_a_run_file_is_one(tmp_path, field):
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps({"id": "x", "question": "who?", "steps": [], field: "East Dundale"}) + "\n")
    (run,) = read_runs(path)
    assert getattr(run, field) == ["East Dundale"]


def test_new_id_of_a_forked_child_differs_from_those_of_its_parent():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        ids = [new_id(), *pool.map(_ids, [5, 5], chunksize=1)]
    flat = [ids[0], *(one for some in ids[1:] for one in some)]
    assert len(set(flat)) == len(flat) == 11
    assert all(len(one) == 32 and int(one, 16) >= 0 for one in flat)


def _ids(count):
    return [new_id() for _ in range(count)]
