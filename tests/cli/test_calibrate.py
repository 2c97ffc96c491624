"""`ragguard calibrate`: a threshold with a promise out of labelled runs, and clear refusals."""

import json
from functools import partial
from pathlib import Path

import pytest
from support.commands import ragguard
from support.runs import a_run

from ragguard import DistractorGuard, world
from ragguard.advice import AdviceCalibration
from ragguard.guard.calibration import Calibration
from ragguard.records import RetrievalStep, Run
from ragguard.scorers import Utility
from ragguard.storage.files.runfile import write_runs

ROOT = Path(__file__).parents[2]


calibrate = partial(ragguard, "calibrate", catch_exceptions=False)


@pytest.fixture
def runs(tmp_path):
    """Labelled retrievals of the world: each with gold and with near misses."""
    path = tmp_path / "runs.jsonl"
    cases = world.cases(60, seed=31, hops=1)
    write_runs(
        (
            Run(
                f"run-{n}", case.question, case.references,
                steps=[RetrievalStep(f"step-{n}", f"run-{n}", 0, 0, case.question, [*case.gold, *case.distractors])],
            )
            for n, case in enumerate(cases)
        ),
        path,
    )  # fmt: skip
    return path


def test_a_calibration_is_written_and_a_guard_takes_it(runs, tmp_path):
    out = tmp_path / "found.json"
    result = calibrate(runs, "--out", out, code=0)
    found = Calibration.load(out)
    assert found.examples == 60
    assert found.gold_loss <= 0.05
    assert f"threshold {found.threshold:.4f}" in result.output
    assert "60 retrievals with gold passages" in result.output
    guard = DistractorGuard("nano")
    guard.use(out)
    assert guard.policies[0].threshold == found.threshold
    calibrate(runs, "--out", out, "--max-loss", "0.3", code=0)
    assert Calibration.load(out).threshold >= found.threshold
    assert Calibration.load(out).distractors_dropped >= found.distractors_dropped


def test_too_few_examples_are_refused_and_nothing_is_written(tmp_path, runs):
    few = tmp_path / "few.jsonl"
    few.write_text("".join(runs.read_text().splitlines(keepends=True)[:5]))
    result = calibrate(few, "--out", tmp_path / "found.json", code=2)
    assert "5 examples" in result.output
    assert "at least 19 are needed" in result.output
    assert not (tmp_path / "found.json").exists()


def test_runs_without_labels_say_what_is_missing(tmp_path):
    path = tmp_path / "runs.jsonl"
    write_runs([a_run()], path)
    result = calibrate(path, "--out", tmp_path / "found.json", code=2)
    assert "0 examples with gold passages were given" in result.output


def test_a_broken_line_is_told_and_the_rest_is_used(runs, tmp_path):
    with runs.open("a") as file:
        file.write("{broken\n")
    result = calibrate(runs, "--out", tmp_path / "found.json", code=1)
    assert "line" in result.output
    assert (tmp_path / "found.json").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--max-loss", "1.5"),
        ("--engine", "what"),
        ("--out", "no-such-folder/found.json"),
    ],
)
def test_wrong_options(runs, tmp_path, arguments):
    result = calibrate(runs, "--out", tmp_path / "found.json", *arguments, code=2)
    assert result.output.startswith("ragguard calibrate: ")
    assert "; allowed: " in result.output


def test_advice_gets_a_calibration_of_its_own(tmp_path):
    path, out = tmp_path / "whole.jsonl", tmp_path / "advice.json"
    cases = world.cases(12, seed=41, hops=2)
    write_runs([world.make_run(case, seed=at, junk=0) for at, case in enumerate(cases)], path)
    result = calibrate(path, "--for", "advice", "--max-loss", "0.1", "--out", out, code=0)
    found = AdviceCalibration.load(out)
    assert (found.runs, found.max_loss) == (12, 0.1)
    assert "costs at most 0.1 of right answers" in result.output
    assert f"rg.advice.use({str(out)!r})" in result.output


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--for", "both"), "guard, advice or udcg"),
        (("--for", "udcg", "--order", "utility"), "no option of the guard"),
        (("--for", "udcg", "--prompts", "default"), "nothing beside --for udcg"),
        (("--for", "udcg", "--max-loss", "0.1"), "nothing beside --for udcg"),
        (("--for", "advice", "--min-keep", "2"), "no option of the guard"),
        (("--for", "advice", "--max-loss", "0.01"), "at least 99"),
        (("--for", "advice", "--max-loss", "2"), "--max-loss"),
    ],
)
def test_options_of_the_one_are_none_of_the_other(runs, tmp_path, arguments, named):
    result = calibrate(runs, "--out", tmp_path / "found.json", *arguments, code=2)
    assert named in " ".join(result.output.split())
    assert not (tmp_path / "found.json").exists()


def test_udcg_is_fitted_and_its_scorer_reads_the_file(tmp_path):
    contexts, out = ROOT / "examples" / "graded_runs.jsonl", tmp_path / "udcg.json"
    result = calibrate(contexts, "--for", "udcg", "--out", out, code=0)
    assert "32 contexts of 8 questions" in result.output
    assert "udcg as it is: " in result.output
    scorer = Utility.fitted(out)
    assert 0 <= scorer.gamma <= 1
    assert scorer.theta["k"] == 2
    assert "theta" in json.loads(out.read_text())["utility"]


def test_udcg_of_too_few_questions_is_refused(tmp_path):
    few = tmp_path / "few.jsonl"
    few.write_text(
        "".join((ROOT / "examples" / "graded_runs.jsonl").read_text().splitlines(keepends=True)[:12])
    )
    result = calibrate(few, "--for", "udcg", "--out", tmp_path / "udcg.json", code=2)
    assert "3 questions have contexts" in result.output
    assert not (tmp_path / "udcg.json").exists()
