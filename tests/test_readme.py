"""Every block of the README and the docs runs as it stands: Python, and the commands line by line."""

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_model import FakeModel
from support.misbehaving_server import Reply, serving
from support.warm_python import run_python
from typer.testing import CliRunner

from ragguard import world
from ragguard.cli.app import app
from ragguard.storage.files.runfile import write_runs

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
DOCS = [
    path
    for folder in ("", "tutorial", "how-to", "reference", "background")
    for path in sorted((ROOT / "docs" / folder).glob("*.md"))
]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(BLOCK.findall(page.read_text()), 1)
]
SHELL = re.compile(r"^```(?:sh|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINES = [
    pytest.param(line, id=f"{page.name}: {line.partition('#')[0].strip()}")
    for page in PAGES
    for block in SHELL.findall(page.read_text())
    for line in block.splitlines()
    if page.name != "README.md" and "demo-out" not in block  # those run one after the other
]
SERVER = "http://localhost:8000/v1"
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


def run_block(block, folder):
    return run_words(folder, "-c", block)


def run_words(folder, *words):
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'integrations'}",
        "HOME": str(folder),
    }
    done = run_python(*words, cwd=folder, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs(block, tmp_path):
    run_block(block, tmp_path)


@pytest.mark.parametrize("page", ["docs/tutorial/first-run.md", "docs/tutorial/hops.md"])
def test_the_output_that_is_shown_is_what_the_block_prints(page, tmp_path):
    block, shown = re.search(
        r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S
    ).groups()
    printed, shown = (
        re.sub(r"^run [0-9a-f]{32}$", "run ID", text.strip(), flags=re.MULTILINE)
        for text in (run_block(block, tmp_path), shown)
    )
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()


@pytest.mark.parametrize("page", ["docs/tutorial/guard.md", "docs/how-to/guard.md"])
def test_the_guard_that_is_shown_drops_something(page, tmp_path):
    """However busy the machine that shows it."""
    (block,) = [one for one in BLOCK.findall((ROOT / page).read_text()) if "guard.prune(" in one]
    assert "pruned" in run_block(re.sub(r"budget_ms=\d+", "budget_ms=60_000", block), tmp_path)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files that the commands name: labelled runs of nano's world, and stores in which they are scored."""
    folder = tmp_path_factory.mktemp("files")
    cases = world.cases(20, seed=5, hops=1)
    write_runs([world.make_run(case, junk=1) for case in cases], folder / "runs.jsonl")
    done = CliRunner().invoke(app, ["score", f"{folder}/runs.jsonl", "--store", f"{folder}/ragguard.db"])
    assert done.exit_code == 0, done.output
    for name in ("old.db", "new.db", "first.db"):
        shutil.copy(folder / "ragguard.db", folder / name)
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copy(ROOT / "examples" / "graded_runs.jsonl", folder)
    label = ["label", f"{folder}/ragguard.db", "--by", "ann", "--out", f"{folder}/labels.jsonl"]
    done = CliRunner().invoke(app, label, input="ynynn" * 6)
    assert "30 labels by ann" in done.output
    (prompts,) = re.findall(
        r"^```toml\n(.*?)^```",
        (ROOT / "docs" / "how-to" / "prompts.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    (folder / "ours.toml").write_text(prompts)
    return folder


@pytest.mark.parametrize("line", LINES)
def test_command_runs(line, files, monkeypatch):
    """With nano in vLLM's place, and a server that answers as others do in theirs."""
    line = line.replace(SERVER, "nano")
    program, *words = shlex.split(line, comments=True)
    if program == "export":
        assert words[0].partition("=")[0].endswith("_KEY")
        return
    if words == ["fetch", "smol"]:  # it downloads 93 MB; tests/engines/llama has what it does
        return
    if program == "make":
        assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return
    assert program == "ragguard"
    monkeypatch.chdir(files)
    if "--follow" in words:  # it goes on until Ctrl-C, and needs a terminal
        words.remove("--follow")
    other = OTHERS.search(line)
    model = "DEPLOYMENT" if "/deployments/" in line else other and other[2]
    with serving(answers_as_others_do(model)) as url:
        words = [OTHERS.sub(url.removesuffix("/v1"), word) for word in words]
        done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output


def test_there_are_blocks():
    assert BLOCKS
    assert LINES
