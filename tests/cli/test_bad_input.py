"""What cannot be shown or compared: each is one sentence that says the way out, and exit code 2."""

import shutil

import pytest
from support.compared import scored, side, stored
from support.stored import closed_after
from typer.testing import CliRunner

from ragguard.cli.app import app
from ragguard.records import Run, Score, ScoredRun
from ragguard.storage.files.runfile import write_runs


def with_coverage(number):
    item = scored(number, 0.5)
    item.scores = [
        *item.scores,
        Score("coverage", 0.5, "step", item.run.id, item.run.steps[0].id, scorer="coverage"),
    ]
    return item


@pytest.fixture
def stores(tmp_path):
    """A good store, and all the bad ones."""
    good = stored(tmp_path / "good.db", side(0))
    stored(tmp_path / "empty.db", [])
    stored(tmp_path / "unscored.db", [ScoredRun(Run("x", "Who is number 1?", ended_ns=1), [])])
    stored(
        tmp_path / "strangers.db",
        [ScoredRun(Run("x", "Quite another?", ended_ns=1), [Score("udcg", 0.5, "run", "x")])],
    )
    stored(tmp_path / "more.db", [with_coverage(number) for number in range(40)])
    (tmp_path / "zero.db").touch()
    write_runs([Run("x", "Who is number 1?")], tmp_path / "runs.jsonl")
    shutil.copy(good, tmp_path / "newer.db")
    for name, statement in (("newer", "PRAGMA user_version = 99"), ("foreign", "CREATE TABLE theirs (x)")):
        with closed_after(tmp_path / f"{name}.db") as db:
            db.execute(statement)
    return tmp_path


def said(*words):
    """The one line that a command says before it leaves with 2."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 2, done.output
    (line,) = done.output.strip().splitlines()
    return line


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("empty.db", "ragguard score RUNS.jsonl"),
        ("zero.db", "capture some runs into it, or name another"),
        ("newer.db", "Upgrade ragguard, or name another file"),
        ("foreign.db", "another program; name another file"),
        ("missing.db", "check the path"),
        ("runs.jsonl", "name another file"),
    ],
)
def test_a_report_of_what_is_no_scored_store(stores, name, way_out):
    line = said("report", stores / name)
    assert line.startswith("ragguard report: ")
    assert way_out in line


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("empty.db", "the second side: got 'no runs'; allowed: scored runs; make some with `ragguard score"),
        ("zero.db", "`ragguard score"),
        ("newer.db", "Upgrade ragguard, or name another file"),
        ("foreign.db", "another program; name another file"),
        ("missing.db", "check the path"),
        ("runs.jsonl", "is a run file; score it first: `ragguard score"),
        ("strangers.db", "at least one question in common"),
        (
            "unscored.db",
            "udcg and no scores'; allowed: at least one metric in common; score both with the same scorers",
        ),
    ],
)
def test_a_comparison_with_what_cannot_be_compared(stores, name, way_out):
    line = said("compare", stores / "good.db", stores / name)
    assert line.startswith("ragguard compare: ")
    assert way_out in line


def test_a_gate_on_a_metric_that_one_side_lacks(stores):
    line = said("compare", stores / "good.db", stores / "more.db", "--fail-if", "coverage < 0")
    assert "a metric of both sides: udcg; one side lacks it: score both with the same scorers" in line
    shown = CliRunner().invoke(app, ["compare", str(stores / "good.db"), str(stores / "more.db")])
    assert "On one side only: coverage." in shown.output
