"""`ragguard report --recall`: how many relevant passages there are, from queries that were asked more than once."""

import pytest
from support.compared import logged, stored
from typer.testing import CliRunner

from ragguard.cli.app import app
from ragguard.metrics import chapman


@pytest.fixture
def shown(tmp_path):
    def call(runs, *more):
        for run in runs:
            run.run.ended_ns = 1
        path = stored(tmp_path / "logged.db", runs)
        return CliRunner().invoke(app, ["report", path, *more], env={"COLUMNS": "160"})

    return call


def test_the_estimate_is_shown_as_an_estimate(shown):
    same = [logged("3", "AB", query="same?"), logged("4", "AB", query="same?")]
    done = shown([logged("1", "ABCDx"), logged("2", "CDEFy"), *same], "--recall")
    assert done.exit_code == 0, done.output
    total = chapman(4, 4, 2)
    assert f"~{total.total:.1f}" in done.output
    assert f"{total.low:.1f} … {total.high:.1f}" in done.output
    assert f"~{4 / total.total:.2f}" in done.output
    assert "1 more were asked twice or more, but found the same each time" in done.output
    assert "Estimated by capture and recapture (Chapman)" in done.output


def test_without_a_query_that_was_asked_twice_it_says_what_is_missing(shown):
    done = shown([logged("1", "AB")], "--recall")
    assert done.exit_code == 2
    assert "asked twice or more" in done.output


def test_it_is_about_all_runs(shown):
    done = shown([logged("1", "AB")], "--recall", "--run", "1")
    assert done.exit_code == 2
    assert "neither --html nor --run" in done.output
