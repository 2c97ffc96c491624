"""The package alone, in a clean environment: what it weighs, what it imports, how long that takes."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = [pytest.mark.install, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
TOOLS = {"pip", "setuptools", "wheel", "pkg_resources", "_distutils_hack"}
MEASURE = """
import importlib.metadata as m, json, os, sys
tools = {"pip", "setuptools", "wheel"}
sizes = {}
for d in m.distributions():
    name = d.metadata["Name"].lower()
    if name not in tools:
        sizes[name] = sum(os.path.getsize(p) for f in d.files or () if os.path.isfile(p := d.locate_file(f)))
print(json.dumps(sizes))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of a fresh environment that holds ragguard's core and nothing else."""
    home = tmp_path_factory.mktemp("clean")
    venv.create(home / "venv", with_pip=True)
    python = home / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", str(ROOT)], check=True, cwd=home)
    return python


def run(python, code):
    """What a program prints there, away from the source tree."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, cwd=python.parent, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_core_install_is_small(python):
    sizes = json.loads(run(python, MEASURE))
    beyond = {name: size for name, size in sizes.items() if name != "numpy"}
    print(json.dumps({"packages": len(beyond), "MB": round(sum(beyond.values()) / 1e6, 1)}))
    assert sum(beyond.values()) <= 45e6, sorted(beyond.items(), key=lambda item: -item[1])[:8]
    assert len(beyond) <= 28, sorted(beyond)


def test_core_install_imports_little(python):
    """What an import costs is what it loads; `make bench-latency` measures the time."""
    code = "import sys; before = set(sys.modules); import ragguard; print(len(set(sys.modules) - before))"
    modules = int(run(python, code))
    print(f"import ragguard: {modules} modules")
    assert modules <= 32


def test_core_install_imports_no_framework(python):
    code = (
        "import sys, ragguard\n"
        "heavy = ('langchain_core', 'llama_index', 'torch', 'vllm', 'scipy', 'pydantic', 'rich', 'httpx')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    assert run(python, code).strip() == "[]"


def test_the_command_line_answers(python):
    command = python.parent / "ragguard"
    assert "metrics" in subprocess.run([command, "--help"], capture_output=True, text=True, check=True).stdout
    table = subprocess.run([command, "metrics"], capture_output=True, text=True, check=True).stdout
    assert "udcg" in table


def test_the_source_tree_is_not_what_was_tested(python):
    assert str(ROOT) not in run(python, "import ragguard; print(ragguard.__file__)")
    assert sys.executable != str(python)
