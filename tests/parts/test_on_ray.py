"""What is said about Ray where there is none. The tests on a cluster are in `tests/parts/on_ray`."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from support.program import run_program
from typer.testing import CliRunner

from ragguard import world, write_runs
from ragguard.cli.app import app
from ragguard.errors import InvalidInput
from ragguard.parts import RayActors


@pytest.fixture
def no_ray(monkeypatch):
    monkeypatch.setattr("ragguard.parts.on_ray.find_spec", lambda name: None)


@pytest.fixture
def some_ray(monkeypatch):
    monkeypatch.setattr("ragguard.parts.on_ray.find_spec", lambda name: object())


def test_importing_ragguard_imports_no_ray():
    imports = "import sys, ragguard, ragguard.parts.on_ray, ragguard.cli.score"
    assert run_program(f"{imports}; print('ray' in sys.modules)").stdout.strip() == "False"


def test_without_ray_one_sentence_says_how_to_get_it(no_ray, tmp_path):
    write_runs((world.make_run(case) for case in world.cases(2)), tmp_path / "runs.jsonl")
    done = CliRunner().invoke(
        app, ["score", str(tmp_path / "runs.jsonl"), "--on", "ray", "--out", str(tmp_path / "out")]
    )
    assert done.exit_code == 2
    assert done.output == "ragguard score: scoring on a Ray cluster needs ray: pip install 'ragguard[ray]'\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"actors": (0, 1)}, "actors: got 0"),
        ({"actors": (3, 1)}, "the second not below the first"),
        ({"actors": 4}, "two numbers"),
        ({"gpus": -1}, "gpus: got -1"),
        ({"overlap": 0}, "overlap: got 0"),
    ],
    ids=str,
)
def test_what_cannot_be_right_is_refused(some_ray, wrong, says):
    with pytest.raises(InvalidInput, match=says):
        RayActors(**wrong)


@pytest.mark.parametrize(
    "address", ["127.0.0.1:9", "ray://127.0.0.1:9", "nowhere", "localhost:notaport", ":"]
)
def test_an_address_where_nobody_is_is_found_out_without_ray(some_ray, address):
    with pytest.raises(InvalidInput, match="HOST:PORT of the head of a Ray cluster"):
        RayActors(address).connect()


@pytest.mark.parametrize("reading", [False, True])
def test_a_connection_that_ray_data_still_reads_from_is_left_open_and_said(
    some_ray, monkeypatch, caplog, reading
):
    """Ray's core would end this process at the first question after the connection's end."""
    ended, closed = threading.Event(), []
    monkeypatch.setattr(
        "ragguard.parts.on_ray._ray", lambda: SimpleNamespace(shutdown=lambda: closed.append(1))
    )
    monkeypatch.setattr("ragguard.parts.on_ray._CLOSE_SECONDS", 0.05)
    reader = threading.Thread(target=ended.wait, name="iter_threaded")
    if reading:
        reader.start()
    executor = RayActors()
    executor._ours = True
    executor.disconnect()
    ended.set()
    assert closed == ([] if reading else [1])
    assert caplog.text.count("still reads results") == reading
    if reading:
        reader.join()
