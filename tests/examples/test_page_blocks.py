"""Every block of the README and the docs runs as it stands, in an empty folder, and prints what the page shows."""

import csv
import json
import os
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.commands import ragguard
from support.fake_model import FakeModel
from support.misbehaving_server import Reply, serving
from support.page_blocks import PAGES, ROOT, RUN, blocks_of, extras_of, installed_with, modules_of
from support.warm_python import run_python

from ragguard import world
from ragguard.storage.files.runfile import write_runs

pytestmark = pytest.mark.slow

WITH_BLOCKS = [
    pytest.param(page, id=str(page.relative_to(ROOT)))
    for page in PAGES
    if any(block.runs for block in blocks_of(page))
]
VLLM = "http://localhost:8000/v1"
OTHERS = re.compile(r"https?://[\w.:-]+(?=(/[^\s\"#]*)(?:#([\w.-]+))?)")
"""The host of a server that is no vLLM; then its path, and the model that is named."""


def answers_as_others_do(model):
    """Answers as an OpenAI-compatible server does that has one model, also under the path of an Azure deployment."""
    fake = FakeModel(face="openai", models=(model or "fake",))

    def handle(request):
        _, deployment, rest = request.path.partition("/openai/deployments/DEPLOYMENT")
        if deployment and request.query != "api-version=2024-10-21":
            return Reply({"error": {"message": "which api-version?"}}, 404)
        return fake.handle(replace(request, path=f"/v1{rest}") if deployment else request)

    return handle


def run_program(block, folder):
    """Runs a block of Python in a process of its own, and returns what it prints."""
    return run_words("-c", block.text, folder=folder, may_warn="warns" in block.why)


def run_words(*words, folder, may_warn=False):
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'integrations'}",
        "HOME": str(folder),
        "COLUMNS": "104" if words[0] == "-m" else "80",
    }
    done = run_python(*words, cwd=folder, environment=environment)
    assert done.returncode == 0, done.stderr
    assert may_warn or words[0] == "-m" or not done.stderr, done.stderr
    return done.stdout


def run_commands(block, folder, monkeypatch):
    """Runs the lines of a block of commands, and returns what they print."""
    monkeypatch.chdir(folder)
    return "".join(run_command(line, with_servers=block.mark is not None) for line in block.text.splitlines())


def run_command(line, *, with_servers):
    """Runs a command; in a block that is run with servers, nano is vLLM, and a server of ours each other one."""
    line = line.replace(VLLM, "nano") if with_servers else line
    program, *words = shlex.split(line, comments=True)
    if program == "export":
        assert words[0].partition("=")[0].endswith("_KEY")
        return ""
    if program == "make":
        assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return ""
    assert program == "ragguard", line
    if not with_servers:
        return run_words("-m", "ragguard", *words, folder=Path.cwd())
    other = OTHERS.search(line)
    model = "DEPLOYMENT" if "/deployments/" in line else other and other[2]
    with serving(answers_as_others_do(model)) as url:
        done = ragguard(*(OTHERS.sub(url.removesuffix("/v1"), word) for word in words))
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files that readers have: labelled runs of nano's world, and a store in which they are scored."""
    folder = tmp_path_factory.mktemp("files")
    cases = world.cases(20, seed=5, hops=1)
    write_runs([world.make_run(case, junk=1) for case in cases], folder / "runs.jsonl")
    searches = [world.make_run(case, junk=0) for case in world.cases(20, seed=5, hops=2)]
    write_runs(searches, folder / "agent_runs.jsonl")
    for name, junk in (("a", 3), ("b", 1)):
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["question", "contexts", "answer", "reference"])
            for run in (world.make_run(case, junk=junk) for case in cases[:6]):
                texts = json.dumps([passage.text for passage in run.steps[0].passages])
                rows.writerow([run.question, texts, run.answer or "", (run.references or [""])[0]])
    done = ragguard("score", f"{folder}/runs.jsonl", "--store", f"{folder}/ragguard.db", "-e", "nano", code=0)
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copy(ROOT / "examples" / "graded_runs.jsonl", folder)
    labels = folder / "labels.jsonl"
    done = ragguard("label", folder / "ragguard.db", "--by", "ann", "--out", labels, input="ynynn" * 6)
    assert "30 labels by ann" in done.output
    prompts = next(block for block in blocks_of(ROOT / "docs/how-to/prompts.md") if block.language == "toml")
    (folder / "ours.toml").write_text(prompts.text)
    return folder


@pytest.fixture(scope="module")
def tutorials(tmp_path_factory):
    """The folder of a reader who does all tutorials in one."""
    return tmp_path_factory.mktemp("tutorials")


@pytest.mark.parametrize("page", WITH_BLOCKS)
def test_the_blocks_of_a_page_run_one_after_the_other(page, tmp_path, tutorials, files, monkeypatch):
    monkeypatch.setenv("RAGGUARD_ENGINE", "nano")  # of the reader who has servers
    folder = tutorials if page.parent.name == "tutorial" else tmp_path
    for block in blocks_of(page):
        for name in os.listdir(files) if block.mark == "run with" else ():
            if name in block.why and not (folder / name).exists():
                (shutil.copytree if (files / name).is_dir() else shutil.copy)(files / name, folder / name)
        if block.runs and block.language == "python":
            printed = run_program(block, folder)
        elif block.runs:
            printed = run_commands(block, folder, monkeypatch)
        if block.shown is not None:
            assert same(printed) == same(block.shown)


def same(printed):
    """Returns what was printed, without the ids of runs and without the ends of lines, which the width decides."""
    return re.sub(r"\brun [0-9a-f]{32}\b", "run ID", " ".join(re.sub("[─]+", "─", printed).split()))


@pytest.mark.parametrize("page", [page for page in WITH_BLOCKS if page.values[0].name != "CONTRIBUTING.md"])
def test_a_block_imports_what_its_page_has_installed(page):
    there = installed_with(extras_of(page))
    for block in blocks_of(page):
        if block.language == "python" and block.runs:
            assert not modules_of(block) - there


def test_the_extras_of_a_page_decide_what_it_may_import():
    assert {"httpx", "numpy", "ragguard", "ragguard_langchain"} <= installed_with(set())
    assert not {"langchain_core", "langgraph"} & installed_with(set())
    assert "langchain_core" in installed_with({"langchain"})
    assert "langgraph" not in installed_with({"langchain"})
    assert {"langchain", "langgraph", "langchain_core"} <= installed_with({"langchain-agents"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_are_not_run_say_why(page):
    for block in blocks_of(page):
        commands = re.search(r"^(ragguard|pip|curl|export|make) ", block.text, re.MULTILINE)
        assert block.language in RUN or not commands or block.mark == "not run", block.text
        assert block.mark is None or block.why


@pytest.mark.parametrize("page", ["docs/tutorial/guard.md", "docs/how-to/guard.md"])
def test_the_guard_that_is_shown_drops_something(page, tmp_path):
    """However busy the machine that shows it."""
    (block,) = [block for block in blocks_of(ROOT / page) if "guard.prune(" in block.text]
    text = re.sub(r"budget_ms=\d+", "budget_ms=60_000", block.text)
    assert "pruned" in run_program(block._replace(text=text), tmp_path)


def test_there_are_blocks():
    assert len(WITH_BLOCKS) > 15
