"""Exit codes are those of a command's help; a package that is missing is named with the line that installs it."""

import re
import sys

import pytest
from support.commands import ragguard

from ragguard import RagGuard
from ragguard.cli.app import COMMANDS, function_of

NOTHING_DONE = {
    "try": "try nowhere Who?",
    "doctor": "doctor nosuch:engine",
    "report": "report nowhere.db",
    "try-again": "try-again nowhere.db abc --engine nano",
    "score": "score nowhere.jsonl --engine nano",
    "label": "label nowhere.db",
    "validate": "validate nowhere.jsonl --engine nano",
    "calibrate": "calibrate nowhere.jsonl --engine nano",
    "compare": "compare nowhere.db elsewhere.db",
    "baseline": "baseline nowhere.db",
    "cases": "cases nowhere.db",
    "serve": "serve --engine nosuch:engine",
    "questions": "questions nowhere.jsonl --engine nano",
    "metrics": "metrics nosuch",
    "export-nano": "export-nano a-file/nano",
}
"""A line that cannot be done, for each command that has one."""
WITHOUT = ("demo", "init", "fetch")
"""The commands whose help names no exit code: they write what they can, or load from an index."""


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("no folder")


def test_each_command_has_a_line_here():
    assert NOTHING_DONE.keys() | set(WITHOUT) == COMMANDS.keys()


@pytest.mark.parametrize("command", NOTHING_DONE)
def test_what_cannot_be_done_ends_with_2_and_a_sentence(command):
    done = ragguard(*NOTHING_DONE[command].split(), code=2)
    assert "Traceback" not in done.output
    assert len(done.output.split()) > 3


@pytest.mark.parametrize("command", sorted(NOTHING_DONE.keys() - {"metrics", "export-nano"}))
def test_help_names_0_and_2(command):
    codes = re.search(r"Exit code 0: .*", " ".join((function_of(command).__doc__ or "").split()))
    assert codes is not None
    assert " 2: " in codes[0]


def test_server_that_does_not_answer_ends_doctor_with_1():
    ragguard("doctor", "http://127.0.0.1:9/v1", code=1)


@pytest.mark.parametrize(("package", "line", "extra"), [
    ("pypdf", "try notes Who?", "pdf"),
    ("pyarrow", "score table.parquet --engine nano", "arrow"),
    ("matplotlib", "report demo.db --figures charts", "figures"),
])  # fmt: skip
def test_missing_package_is_named_at_once(tmp_path, monkeypatch, package, line, extra):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "x.pdf").write_bytes(b"%PDF-1.4")
    with RagGuard(None, store=tmp_path / "demo.db") as rg, rg.run("Who?") as run:
        run.retrieved("Who?", ["Ada."])
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    done = ragguard(*line.split(), code=2)
    assert f"[{extra}]" in "".join(done.output.split()), done.output
