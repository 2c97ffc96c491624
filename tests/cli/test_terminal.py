"""What the commands print in terminals that are narrow, that tell no width, or that do not speak UTF-8."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from support.commands import ragguard
from support.compared import NAMES, scored_in_full
from support.stored import scored_store

from ragguard.cli.app import COMMANDS, function_of
from ragguard.cli.terminal import progress_bar
from ragguard.records import Decision, Dropped, Failure, Passage, RetrievalStep, Run, Score, ScoredRun
from ragguard.storage.files.runfile import write_scores


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return scored_store(tmp_path_factory.mktemp("terminal") / "a.db", map(scored_in_full, range(7)))


def shown(monkeypatch, width, *words):
    monkeypatch.setenv("COLUMNS", str(width))
    done = ragguard(*words, code=0)
    assert max(map(len, done.output.splitlines())) <= width
    return done.output


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_list_of_runs_shows_their_questions_at_any_width(monkeypatch, store, width):
    said = shown(monkeypatch, width, "report", store)
    for word in ("founded", "firm", "number", "+0.50 (support)"):
        assert said.count(word) >= 7, word
    assert ("A wider terminal shows more: " in said) is (width < 80)


def test_a_list_marks_runs_that_have_no_end(monkeypatch, tmp_path):
    statuses = {"a": "open", "b": "ok", "c": "abandoned", "d": "open"}
    runs = [Run(f"run-{name}", f"{name}?", status=status) for name, status in statuses.items()]
    path = scored_store(tmp_path / "open.db", map(ScoredRun, runs))
    said = shown(monkeypatch, 160, "report", path)
    assert "4 runs (2 still running), what needs a person first" in " ".join(said.split())
    marks = {line.split()[0]: line for line in said.splitlines() if line.strip()[1:2] == "?"}
    assert [word for word in ("running", "abandoned") if word in marks["a?"]] == ["running"]
    assert [word for word in ("running", "abandoned") if word in marks["b?"]] == []
    assert [word for word in ("running", "abandoned") if word in marks["c?"]] == ["abandoned"]
    assert "(2 still running)" in shown(monkeypatch, 60, "report", path)


@pytest.mark.parametrize(("engine", "told"), [("", False), ("nano:1", True)])
def test_a_list_names_the_models_behind_its_numbers_and_none_where_none_answered(
    monkeypatch, tmp_path, engine, told
):
    score = Score("answer_in_context", 1.0, "run", "r", engine=engine)
    path = scored_store(tmp_path / "s.db", [ScoredRun(Run("r", "Who?"), [score])])
    said = shown(monkeypatch, 80, "report", path)
    assert (f"The numbers are those of {engine}." in said) is told
    assert ("The numbers are those of" in said) is told


def test_a_comparison_is_whole_at_eighty_columns(monkeypatch, store):
    said = shown(monkeypatch, 80, "compare", store, store, "--all")
    for name in NAMES:
        (line,) = [line for line in said.splitlines() if line.split()[:1] == [name]]
        assert line.split() == [name, "↑", "+0.000", "(+0.000", "…", "+0.000)", "not", "decisive"]
    assert "A wider terminal shows more: p, before, after, effect, questions." in said


def called(store, env, command, *more):
    return subprocess.run(
        [sys.executable, "-c", "from ragguard.cli import main; main()", command, store, *more],
        env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize("more", [(), ("--run", "r1")])
def test_character_that_a_terminal_cannot_encode_is_replaced(store, encoding, more):
    done = called(store, {**os.environ, "PYTHONIOENCODING": encoding}, "report", *more)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "SePer" in done.stdout.decode(encoding)


HOSTILE = "\x1b[2J\x1b]0;owned\x07 \x9b31m [red]x[/red] \u202eesrever\r\n and on"


def hostile(number):
    passages = [Passage(HOSTILE), Passage("")]
    step = RetrievalStep(
        id=f"s{number}", run_id=f"r{number}", query=HOSTILE, passages=passages, candidates=passages
    )
    step.decision = Decision(passages[1:], [Dropped(passages[0], 1, HOSTILE, -0.5)], "pruned")
    run = Run(f"r{number}", f"{number} {HOSTILE}", None, HOSTILE, [step], ended_ns=1)
    said = [
        Score("answer_correct", 1.0, "run", run.id, label=HOSTILE),
        Score(f"udcg{HOSTILE}", float(number), "step", run.id, step.id),
    ]
    return ScoredRun(run, said, [Failure("belief", "Timeout", HOSTILE, False, run.id)])


@pytest.mark.parametrize("more", [(), ("--run", "r1")])
def test_control_characters_of_passages_are_removed(monkeypatch, tmp_path, more):
    path = scored_store(tmp_path / "a.db", map(hostile, range(3)))
    said = shown(monkeypatch, 200, "report", path, *more)
    assert not set(said) & set("\x1b\x07\x9b\r\u202e")
    assert "[red]x[/red]" in said
    assert "cut" not in said


def test_control_characters_of_questions_metrics_and_lines_are_removed(monkeypatch, tmp_path):
    before = scored_store(tmp_path / "a.db", map(hostile, range(9)))
    after = [hostile(number) for number in range(9)]
    for item in after:
        item.scores = [replace(score, value=score.value + 1, engine=HOSTILE) for score in item.scores]
    write_scores(after, tmp_path / "b.jsonl")
    said = shown(monkeypatch, 400, "compare", before, str(tmp_path / "b.jsonl"), "--all")
    assert not set(said) & set("\x1b\x07\x9b\r\u202e")
    (tmp_path / "runs.jsonl").write_text(json.dumps({"question": "q", "steps": [], HOSTILE: 1}))
    done = ragguard("score", tmp_path / "runs.jsonl", "--dry-run")
    assert "no field of that name" in done.output
    assert "\x1b" not in done.output


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_whole_sentences_in_a_small_terminal(monkeypatch, command):
    said = shown(monkeypatch, 80, command, "--help")
    assert said.startswith((f"Usage: ragguard {command}", f"Usage: root {command}"))
    words = " ".join(said.split())
    assert " ".join(function_of(command).__doc__.replace("\b", "").split()) in words


def test_the_command_runs_as_a_module_of_python_too(store):
    done = subprocess.run(
        [sys.executable, "-m", "ragguard", "report", str(store)], capture_output=True, text=True, check=True
    )
    assert "7 runs" in done.stdout


def test_long_question_takes_two_lines_of_the_list_and_ends_in_an_ellipsis(monkeypatch, tmp_path):
    scores = [
        Score("seper_closed_book", 0.25, "run", "run-a", stderr=0.01),
        Score("delta_seper_total", 0.5, "run", "run-a", stderr=0.1),
    ]
    asked = "Which of the " + "many " * 40 + "firms?"
    path = scored_store(tmp_path / "long.db", [ScoredRun(Run("run-a", asked, status="ok"), scores)])
    said = shown(monkeypatch, 80, "report", path)
    lines = [line for line in said.splitlines() if "many" in line]
    assert len(lines) == 2
    assert lines[1].rstrip().endswith("…")
    assert "██▓▓▓▓··" in lines[0]


def test_progress_without_a_terminal_is_a_line_each_half_minute(monkeypatch, capsys):
    seconds = iter([0.0, 20.0, 60.0, 70.0, 100.0])
    monkeypatch.setattr("ragguard.cli.terminal.monotonic", lambda: next(seconds))
    with progress_bar("scoring", total=100) as update:
        for completed in (10, 25, 30, 100):
            update(completed=completed)
    assert capsys.readouterr().err == "scoring: 25 %, about 3 min left\n"
