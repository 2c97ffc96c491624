"""Commands of ragguard, called in this process as a user types them."""

from __future__ import annotations

from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from ragguard.cli.app import app


def ragguard(*words: object, code: int | None = None, **more: Any) -> Result:
    """Calls a command, which has to end with the exit code if one is given."""
    done = CliRunner().invoke(app, [str(word) for word in words], **more)
    assert code is None or done.exit_code == code, done.output
    return done


def refusal(*words: object) -> str:
    """Returns the one line with which a command refuses what it is given."""
    (line,) = ragguard(*words, code=2).output.strip().splitlines()
    return line
