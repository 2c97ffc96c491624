"""`ragguard --help`: commands in groups, what few users need named at the end, and every command with a file of its own
or a place elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import ragguard.cli
from ragguard.cli.app import COMMANDS, ELSEWHERE, GROUPS, SELDOM, app

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
def test_each_command_has_help(name):
    done = CliRunner().invoke(app, [name, "--help"])
    assert done.exit_code == 0, done.output


def test_the_command_that_went_is_unknown():
    assert CliRunner().invoke(app, ["watch"]).exit_code == 2
