"""`ragguard demo` as a stranger runs it: what it prints, what it leaves, what it says where a framework is missing."""

import re
import shlex
from pathlib import Path

import pytest
from support.commands import ragguard
from support.program import environment, run_program

from ragguard.cli import demo
from ragguard.storage.files.runfile import read_runs

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The demonstration in a fresh process and folder, at the width of a small terminal."""
    folder = tmp_path_factory.mktemp("demo")
    variables = environment() | {"COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    code = "from ragguard.cli import main; main()"
    done = run_program(code, "demo", env=variables, cwd=folder, encoding="utf-8", timeout=240)
    assert done.stderr == ""
    return done.stdout, folder / "demo-out"


def test_four_lines_say_first_what_was_paid_misled_saved_and_compared(shown):
    printed, _ = shown
    words = re.findall(r"^(paid|misled|saved|compared) ", printed, re.MULTILINE)
    assert words == ["paid", "misled", "saved", "compared"]
    said = re.sub(r"\s+", " ", printed[: printed.index("no guard ")])
    assert "Hops 1 and 2 were both needed (without hop" in said
    assert re.search(r"Wrong: “[^”]+” is in passage \d\.\d, the reference “[^”]+” in \d\.\d", said)
    assert re.search(
        r"the same agent answered “[^”]+”: right\. [1-9] of 5 answers were saved, 0 lost\.", said
    )
    assert re.search(r"Better: belief \(delta_seper_total\) \+0", said)


def test_the_readme_shows_these_lines(shown):
    printed, _ = shown
    (lines,) = re.findall(
        r"^```text\n(paid .*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert " ".join(lines.split()) in " ".join(printed.split())


def test_saved_answer_is_shown_hop_by_hop_without_the_guard_and_with_it(shown):
    printed, _ = shown
    assert "LlamaIndex, no guard ─" in printed
    wrong, _, right = printed.partition("LlamaIndex, guard ─")
    for part, verdict in ((wrong, "(wrong)"), (right, "(correct)")):
        hops = [line[:6] for line in part.splitlines() if line.startswith("hop ") and line[5:6] == ":"]
        assert hops == ["hop 1:", "hop 2:"]
        assert verdict in part
    assert "dropped: -" in right
    for word in ("guard", "scoring", "tokens", "ms a retrieval", "ragguard report"):
        assert word in right, word


def test_stores_and_runs_of_the_demo_can_be_read(shown):
    _, out = shown
    runs = list(read_runs(out / "runs.jsonl"))
    count = len(demo.COMPARED) + 2 * len(demo.GUARDED)
    assert len(runs) == count
    assert {len(run.steps) for run in runs} == {2}
    assert all(run.answer for run in runs)
    assert sum(step.decision is not None for run in runs for step in run.steps) == 2 * len(demo.GUARDED)
    done = ragguard("report", out / "ragguard.db", code=0)
    assert f"{count} runs" in done.output
    done = ragguard("compare", out / "worse-search.db", out / "ragguard.db")
    assert done.output.startswith("Better: ")
    assert f"over {len(demo.COMPARED)} questions" in " ".join(done.output.split())


def test_the_tutorials_commands_run_one_after_the_other_behind_the_demo(shown, monkeypatch):
    """No file is there but what the commands before have written."""
    _, out = shown
    page = (ROOT / "docs" / "tutorial" / "first-run.md").read_text()
    shell = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (first, *lines) = next(block for block in shell if "demo-out" in block).splitlines()
    assert shlex.split(first, comments=True) == ["ragguard", "demo"]
    monkeypatch.chdir(out.parent)
    for line in lines:
        program, *words = shlex.split(line, comments=True)
        done = ragguard(*words)
        assert (program, done.exit_code) == ("ragguard", 0), done.output
    assert (out.parent / "report.html").exists()


def test_a_store_of_the_users_own_is_not_overwritten(tmp_path):
    (tmp_path / "ragguard.db").write_text("mine")
    done = ragguard("demo", "--out", tmp_path, code=2)
    assert "a folder without a store of your own" in done.output
    assert (tmp_path / "ragguard.db").read_text() == "mine"


@pytest.mark.parametrize("out", ["file", "file/below"])
def test_a_place_that_cannot_hold_the_results_is_one_sentence(tmp_path, out):
    (tmp_path / "file").touch()
    done = ragguard("demo", "--out", tmp_path / out, code=2)
    assert re.fullmatch(r"ragguard demo: .+/file.*; check the files and the disk\n", done.output)


def test_demo_without_a_framework_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "FRAMEWORKS", {"One": "ragguard_langchain", "Other": "neither_this"})
    done = ragguard("demo", "--out", tmp_path / "out", code=2)
    assert "pip install './ragguard[demo]'" in done.output
    assert not (tmp_path / "out").exists()
