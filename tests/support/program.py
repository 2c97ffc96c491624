"""Programs of a test's own, in a Python that finds the package and the tests' support."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent


def command(code: str, *arguments: object) -> list[str]:
    """Returns the command line that runs `code` with these arguments."""
    return [sys.executable, "-c", code, *map(str, arguments)]


def environment() -> dict[str, str]:
    """Returns this process's environment, with the package and `tests` on the import path."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "integrations"))),
    }


def run_program(code: str, *arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """Runs the code to its end in another process; a failure of the process is raised, unless `check=False`."""
    options = {
        "capture_output": True,
        "text": True,
        "timeout": 120,
        "check": True,
        "env": environment(),
        **more,
    }
    done = subprocess.run(command(code, *arguments), **{**options, "check": False})
    assert not options["check"] or done.returncode == 0, done.stderr
    return done


def run_suite(folder: Path, *options: str) -> str:
    """Runs the tests in a folder, with the fixtures that ragguard gives to its users; returns what pytest prints."""
    arguments = ["-q", "-p", "ragguard.pytest_gate", "-p", "no:cacheprovider", str(folder), *options]
    done = run_program(
        "import pytest, sys; sys.exit(pytest.main())", *arguments, cwd=folder, check=False,
        env=environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    return done.stdout + done.stderr
