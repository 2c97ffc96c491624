"""The examples run as a user would run them, and print the table of their hops."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
from support.warm_python import run_python

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
HOPS = {
    "fastapi_service": 4,
    "haystack_drop_in": 3,
    "langchain_drop_in": 3,
    "langchain_guard": 4,
    "langgraph_advised_agent": 2,
    "langgraph_multi_hop_agent": 2,
    "llamaindex_advised_agent": 2,
    "llamaindex_agent": 2,
    "llamaindex_drop_in": 3,
    "llamaindex_guard": 3,
    "manual_capture": 4,
}
"""At least so many hops are shown by the examples that need nothing else."""


@cache
def run(name: str, *arguments: str, timeout: int = 240) -> str:
    path = os.pathsep.join((str(ROOT), str(ROOT / "integrations")))
    done = run_python(
        str(ROOT / "examples" / f"{name}.py"), *arguments, cwd=ROOT, environment={**os.environ, "PYTHONPATH": path},
        timeout=timeout,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" or name == "fastapi_service"
    return done.stdout


def assert_shows_hops(printed: str, least: int) -> None:
    hops = [line for line in printed.splitlines() if line.startswith("hop ")]
    assert len(hops) >= least
    for what in ("ΔSePer", "±", "UDCG", "coverage", "passage", "utility"):
        assert what in printed


@pytest.mark.parametrize("name", HOPS)
def test_an_example_prints_the_table_of_its_hops(name):
    assert_shows_hops(run(name), HOPS[name])


@pytest.mark.vllm
def test_example_against_a_real_vllm_prints_its_hops(vllm_server):
    assert_shows_hops(run("vllm_server", f"{vllm_server.url}#{vllm_server.model}"), 4)


def test_without_an_address_the_vllm_example_says_how_to_call_it():
    path = ROOT / "examples" / "vllm_server.py"
    done = run_python(str(path), cwd=ROOT, environment={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 1
    assert "vllm serve" in done.stderr


def test_none_is_forgotten():
    # The page on CI runs its example, and the tests of vLLM theirs.
    assert set(EXAMPLES) == {*HOPS, "vllm_server", "ci_runs"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_read_in_one_go(name):
    assert len((ROOT / "examples" / f"{name}.py").read_text("utf-8").splitlines()) <= 65


@pytest.mark.parametrize("name", [name for name in HOPS if name.endswith("_guard")])
def test_a_guarded_example_shows_what_was_dropped(name):
    assert "dropped:" in " ".join(run(name).split())


@pytest.mark.parametrize("name", [name for name in HOPS if name.endswith("_advised_agent")])
def test_an_advised_example_stops_in_time(name):
    """Its plan has six searches."""
    said = [line for line in run(name).splitlines() if line.startswith(("hop ", "advice: "))]
    assert [line.split(" ")[:2] for line in said] == [
        ["hop", "1:"], ["advice:", "continue"], ["hop", "2:"], ["advice:", "answer"],
    ]  # fmt: skip
