"""Records made by hand: a wrong field is named where the record is handed over, and nothing fails later."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from support.runs import a_run
from support.scripted_engine import ScriptedEngine
from typer.testing import CliRunner

from ragguard import Passage, RagGuard, Score
from ragguard.cli.app import app
from ragguard.errors import InvalidInput
from ragguard.records import Decision, Dropped, Failure, SubStep, TraceContext
from ragguard.schema import checked_run
from ragguard.storage.files.runfile import read_runs, write_runs
from ragguard.telemetry.jsonl import JsonlSink

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
    assert CliRunner().invoke(app, ["report", str(tmp_path / "s.db")]).exit_code == 0
