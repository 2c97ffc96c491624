"""`ragguard --help`: commands in groups, what few users need named at the end, and every command with a file of its own
or a place elsewhere."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import ragguard.cli
from ragguard.cli.app import COMMANDS, ELSEWHERE, EXAMPLES, GROUPS, SELDOM, app

FOLDER = Path(ragguard.cli.__file__).parent
NO_COMMANDS = {
    "quotes",
    "two_searches",
    "__init__",
    "app",
    "follow",
    "run_source",
    "score_parts",
    "scoring_options",
    "terminal",
    "weights",
}


def test_help_lists_the_groups_in_the_order_in_which_a_user_needs_them():
    said = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "120"}).stdout
    places = [said.index(f"{title}:\n") for title in ("Start", "Look", "Measure", "Gate", "Operate")]
    assert places == sorted(places)
    assert said.index("  demo ") < said.index("Look:") < said.index("  report ") < said.index("Measure:")
    assert f"Seldom needed: {', '.join(SELDOM)}." in said
    for line in SELDOM.values():
        assert line not in said


def test_a_command_stands_in_one_group_and_has_a_function():
    listed = [name for group in (*GROUPS.values(), SELDOM) for name in group]
    assert len(listed) == len(set(listed)) == len(COMMANDS)
    files = (
        {path.stem for path in FOLDER.glob("*.py")} - NO_COMMANDS - {file for file, _ in ELSEWHERE.values()}
    )
    assert files == COMMANDS.keys() - ELSEWHERE.keys() - {file for file, _ in ELSEWHERE.values()}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_that_ends_with_an_example_which_it_takes(name):
    done = CliRunner().invoke(app, [name, "--help"])
    assert done.exit_code == 0, done.output
    assert " ".join(EXAMPLES[name].split()[:2]) in done.output.rpartition("Example: ragguard")[2]
    called, *words = shlex.split(EXAMPLES[name])
    assert called == name
    get_command(app).get_command(None, name).make_context(name, words)  # raises for what it does not take


def test_name_that_is_none_gets_those_most_like_it():
    assert "Did you mean report?" in CliRunner().invoke(app, ["repot"]).output
    done = CliRunner().invoke(app, ["report", "--cause", "misledd"])
    assert "misled (did you mean that?); known are" in done.output
    assert "allowed: udcg (did you mean that?)" in CliRunner().invoke(app, ["metrics", "udgc"]).output
    assert "--fail-if" in CliRunner().invoke(app, ["compare", "a", "b", "--fail-iff", "x"]).output
