"""What the commands print in terminals that are narrow, that tell no width, or that do not speak UTF-8."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from ragguard.cli.app import app
from ragguard.cli.validate import _show
from ragguard.records import Passage, RetrievalStep, Run, Score
from ragguard.sinks.base import ScoredRun
from ragguard.validate.tables import Table
from tests.cli.test_compare import stored

NAMES = ("delta_coverage", "delta_semantic_entropy", "udcg")


def scored(number):
    step = RetrievalStep(
        id=f"s{number}", run_id=f"r{number}", query="q", passages=[Passage("Näheres: 東京 ☃")]
    )
    run = Run(f"r{number}", f"Who founded the firm number {number}?", None, "nobody", [step], ended_ns=1)
    said = [Score(name, 0.25, "step", run.id, step.id, stderr=0.1) for name in NAMES]
    said += [Score("delta_seper_total", 0.5, "run", run.id, reference_source="answer")]
    said += [Score("utility", 0.9, "passage", run.id, step.id, position=1)]
    return ScoredRun(run, said)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return stored(tmp_path_factory.mktemp("terminal") / "a.db", map(scored, range(7)))


def shown(monkeypatch, width, *words):
    monkeypatch.setenv("COLUMNS", str(width))
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines())) <= width
    return done.output


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_list_of_runs_shows_their_questions_at_any_width(monkeypatch, store, width):
    said = shown(monkeypatch, width, "report", store)
    for word in ("founded", "firm", "number", "+0.50 (support)"):
        assert said.count(word) >= 7, word
    assert ("A wider terminal shows more: " in said) is (width < 160)


def test_a_comparison_is_whole_at_eighty_columns(monkeypatch, store):
    said = shown(monkeypatch, 80, "compare", store, store)
    for name in NAMES:
        (line,) = [line for line in said.splitlines() if line.split()[:1] == [name]]
        assert line.split() == [name, "+0.000", "(+0.000", "…", "+0.000)", "1.000", "no", "difference"]
    assert "A wider terminal shows more: before, after, effect." in said


def test_where_no_terminal_tells_a_width_a_comparison_has_room(store):
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    said = called(store, env, "compare", store).stdout.decode()
    assert "before" in said
    assert "wider" not in said


def test_a_narrow_table_keeps_its_first_column(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    columns = ("Data", *(f"T{number}, Pearson" for number in range(7)))
    _show([Table("name", "title", columns, (("Statements-n", *[0.5] * 7),))])
    assert capsys.readouterr().out.count("Statements-n") == 2


def called(store, env, command, *more):
    return subprocess.run(
        [sys.executable, "-c", "from ragguard.cli import main; main()", command, store, *more],
        env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize("more", [(), ("--run", "r1")])
def test_what_a_terminal_cannot_spell_is_replaced(store, encoding, more):
    done = called(store, {**os.environ, "PYTHONIOENCODING": encoding}, "report", *more)
    assert (done.returncode, done.stderr) == (0, b"")
    said = done.stdout.decode(encoding)
    assert "dSePer" in said
    assert "#####" in said or not more
    assert ("?? ?" in said) is bool(more)
