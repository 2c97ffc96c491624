"""`ragguard report --follow` beside an application that runs: lines appear, a store may go and come, Ctrl-C ends it."""

import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

import pytest
from support.commands import ragguard
from support.polling import eventually

from ragguard import Passage, RagGuard
from ragguard.cli.follow import follow_table
from ragguard.facts.run_view import RunView
from ragguard.records import PROVISIONAL, Failure, RetrievalStep, Run, Score, ScoredRun

QUESTION = "Where was Hugo Rosquist born?"


def capture(store, question=QUESTION):
    with RagGuard(engine="nano", scorers=["utility"], store=store) as rg:
        with rg.run(question) as run:
            run.retrieved("birthplace", [Passage("Hugo Rosquist was born in Upper Dunness.")])
            run.answered("Upper Dunness")
        assert rg.flush(timeout=60)


def test_a_terminal_follows_a_store_that_comes_and_goes_until_it_is_interrupted(tmp_path):
    store, said = tmp_path / "ragguard.db", []
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-c",
        "from ragguard.cli import main; main()",
        "report",
        store,
        "--follow",
    ]
    process = subprocess.Popen(
        command, stdout=theirs, stderr=subprocess.PIPE,
        # A shell's background commands, such as a CI run's, are deaf to it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    os.close(theirs)

    def read():
        with suppress(OSError):  # the other side is gone
            while found := os.read(ours, 65536):
                said.append(found.decode(errors="replace"))

    def shown(text):
        eventually(lambda: text in "".join(said), 60, every=0.02)

    threading.Thread(target=read, daemon=True).start()
    try:
        shown("waiting for")
        capture(store)
        shown("Hugo")
        for path in tmp_path.glob("ragguard.db*"):
            path.unlink()
        capture(store, "Is this a new store?")
        shown("Is this a new")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
        os.close(ours)


def test_output_that_is_no_terminal_is_refused_with_the_way_out(tmp_path):
    done = ragguard("report", tmp_path / "ragguard.db", "--follow")
    assert (done.exit_code, "without --follow" in done.output) == (2, True)


@pytest.mark.parametrize("kind", ["run file", "folder"])
def test_something_that_is_no_store_is_refused(tmp_path, kind):
    path = tmp_path / "runs.jsonl"
    path.write_text('{"format": "ragguard.runs/1"}\n') if kind == "run file" else path.mkdir()
    done = ragguard("report", path, "--follow")
    assert (done.exit_code, "no terminal" in done.output) == (2, False), done.output


def test_runs_without_a_time_have_no_column_for_it():
    def titles(started_ns):
        return [
            column.header for column in follow_table([RunView(Run("r", "q", started_ns=started_ns))]).columns
        ]

    assert "began" in titles(1)
    assert "began" not in titles(0)


def test_a_run_of_today_has_its_time_and_an_older_one_its_date_too():
    three_days_ago = time.time_ns() - 259_200_000_000_000
    table = follow_table([RunView(Run("r", "q", started_ns=at)) for at in (time.time_ns(), three_days_ago)])
    shown = [str(cell) for cell in table.columns[0].cells]
    assert re.fullmatch(r"\d\d:\d\d:\d\d", shown[0])
    assert shown[1] == f"{datetime.fromtimestamp(three_days_ago / 1e9):%Y-%m-%d %H:%M}"


def scored(status="ok"):
    steps = [
        RetrievalStep(id=f"s{n}", index=n, query="q", passages=[Passage("a"), Passage("b")]) for n in range(2)
    ]
    scores = [
        Score("delta_seper", 0.04, "step", "r", "s0", reference_source="gold"),
        Score("udcg", 0.644, "step", "r", "s0"),
        Score("udcg", 0.5, "step", "r", "s0", stage="candidates"),
        Score("coverage", 0.5, "step", "r", "s0"),
        Score("utility", -0.8, "passage", "r", "s0", position=1),
        Score("delta_seper", -0.3, "step", "r", "s1", reference_source="gold"),
        Score("delta_seper_total", -0.26, "run", "r", reference_source="gold"),
        Score("answer_correct", 0.0, "run", "r", label="wrong"),
    ]
    return ScoredRun(Run(id="r", question="[b]Who?\x1b[31m", steps=steps, status=status), scores)


def followed_line(scored):
    """The cells of a run in the table, in one line."""
    cells = [
        column.cells for column in follow_table([RunView(scored.run, scored.scores, scored.failures)]).columns
    ]
    return "  ".join(cell.plain.replace("\n", "  ") for (cell,) in cells if cell.plain)


def test_a_scored_run_is_one_line_with_its_hops():
    line = followed_line(scored())
    assert "1 2 passages · ΔSePer +0.04 · UDCG 0.644 · coverage 0.50 1 misleading" in line
    assert "2 2 passages · ΔSePer -0.30" in line
    assert "-0.26  wrong" in line
    assert "[b]Who?" in line
    assert "\x1b" not in line


def test_passage_that_the_model_did_not_get_is_not_called_misleading():
    one = scored()
    step = one.run.steps[0]
    step.passages = step.candidates = [Passage("a"), Passage("b")]
    assert "misleading" in followed_line(one)
    step.passages = [Passage("b")]
    assert "misleading" not in followed_line(one)


@pytest.mark.parametrize(
    ("status", "scores", "failures", "told"),
    [("open", [], [], "running"), ("ok", [], [], "not scored yet"), ("interrupted", [], [], "waits to go on"),
     ("ok", [], [Failure("belief", "X", "x")], "not scored"), ("abandoned", [], [], "abandoned")],
)  # fmt: skip
def test_run_without_a_verdict_shows_its_status(status, scores, failures, told):
    one = replace(scored(status), scores=scores, failures=failures)
    line = followed_line(one)
    assert line.endswith(told)
    assert "1 2 passages  2 2 passages" in line


def test_a_hop_with_other_numbers_shows_these():
    grades = [Score(name, 0.5, "step", "r", "s0") for name in ("precision_at_grade", "harm", "t", "ra_nwg")]
    line = followed_line(replace(scored(), scores=grades))
    assert "1 2 passages · precision_at_grade 0.50 · harm 0.50 · t 0.50  2 2 passages" in line
    assert not line.endswith("not scored yet")


def test_a_run_whose_end_is_not_scored_yet_shows_what_is_known_so_far():
    early = [replace(one, metadata={PROVISIONAL: True}) for one in scored().scores if one.step_id]
    going, ended = replace(scored("open"), scores=early), replace(scored(), scores=early)
    assert followed_line(going).endswith("running")
    assert "1 2 passages · ΔSePer +0.04 · UDCG 0.644" in followed_line(going)
    assert followed_line(ended).endswith("so far")


@pytest.mark.parametrize(
    ("gain", "colour"), [(-0.3, "red"), (0.3, "green"), (-0.15, "bright_black"), (0.0, "bright_black")]
)
def test_a_gain_has_colour_only_beyond_two_standard_errors(gain, colour):
    total = Score("delta_seper_total", gain, "run", "r", stderr=0.1)
    table = follow_table([RunView(Run("r", "who?"), [total])])
    (cell,) = table.columns[-2].cells
    assert str(cell.style) == colour
    assert not cell.plain.startswith("-0.00")
