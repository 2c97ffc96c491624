"""The workflow of docs/how-to/ci.md runs as it stands, on the main branch and then on a pull request, with a tiny model
in smol's place."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.tiny_gguf import make_gguf

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "how-to" / "ci.md").read_text()
STEP = re.compile(r"^      - (?:if: (?P<when>.*)\n        )?run: (?P<command>.*)$", re.MULTILINE)
ELSEWHERE = ("pip install", "ragguard fetch", "gh pr comment")


def test_workflow_gates_a_pull_request_against_the_main_branch(tmp_path):
    pytest.importorskip("gguf")
    _, model = make_gguf(tmp_path / "model")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "bin").mkdir()
    for name, words in (("ragguard", "-m ragguard"), ("python", "")):
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        program.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "RAGGUARD_EXAM": "off",
        "HOME": str(tmp_path),
    }  # fmt: skip
    printed = ""
    for event in ("push", "pull_request"):
        for step in STEP.finditer(PAGE):
            command = step["command"].replace("--engine smol", f"--engine gguf:{model} --scorers likelihood")
            if command.startswith(ELSEWHERE) or (step["when"] and f"'{event}'" not in step["when"]):
                continue
            done = subprocess.run(
                command,
                shell=True,
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            printed += done.stdout
        (tmp_path / "new.db").unlink(missing_ok=True)
    assert "The baseline main is of 20" in printed
    comment = (tmp_path / "comment.md").read_text()
    # A network adds up in another order where other rows come with a text: then the last digits differ.
    assert comment.startswith(
        ("### Identical: 6 questions", "### Undecided: no difference is measurable over 6 questions")
    )
    assert "| delta_likelihood_total ↑ |" in comment
