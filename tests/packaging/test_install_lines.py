"""Install lines of pages, examples and messages: one form, which installs this project and no other."""

import re
import subprocess
import tomllib
import venv
from pathlib import Path

import pytest

from ragguard.errors import MissingDependency, install_line

ROOT = Path(__file__).parents[2]
PLACES = [
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "examples/*.py",
        "ragguard/**/*.py",
        "integrations/**/*.py",
        "studies/**/*.py",
    )
    for path in sorted(ROOT.glob(pattern))
    if "decisions" not in path.parts and "_build" not in path.parts
]
LINE = re.compile(r"pip install '?(?P<target>[^\s'`]*ragguard[^\s'`,]*(?:,[\w,-]+\])?)")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_every_install_line_names_the_clone_and_extras_that_exist():
    lines = 0
    for path in PLACES:
        for match in LINE.finditer(path.read_text(encoding="utf-8")):
            if "{" in match["target"]:
                continue  # `install_line` itself
            lines += 1
            found = re.fullmatch(r"\./ragguard(?:\[(?P<extras>[\w,-]+)\])?", match["target"])
            assert found, f"{path.relative_to(ROOT)}: {match[0]}"
            assert set((found["extras"] or "smol").split(",")) <= EXTRAS.keys(), f"{path.name}: {match[0]}"
    assert lines >= 20


def test_messages_say_the_same_line():
    assert install_line("smol") == "pip install './ragguard[smol]'"
    assert str(MissingDependency("pypdf", "reading a PDF", "pdf")).endswith(install_line("pdf"))


@pytest.mark.install
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_line_installs_this_project_in_a_clean_environment(tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    (tmp_path / "ragguard").symlink_to(ROOT)
    line = install_line("pdf").replace("pip", f"{tmp_path / 'venv' / 'bin' / 'python'} -m pip", 1)
    subprocess.run(line + " -q", shell=True, check=True, cwd=tmp_path)
    done = subprocess.run(
        [tmp_path / "venv" / "bin" / "ragguard", "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert "what each retrieval did" in done.stdout
