"""What is said about Ray where there is none; needs no Ray."""

from __future__ import annotations

import pytest
from support.commands import ragguard

from ragguard import world, write_runs
from ragguard.errors import InvalidInput
from ragguard_ray import RayActors


@pytest.fixture
def no_ray(monkeypatch):
    monkeypatch.setattr("ragguard_ray.find_spec", lambda name: None)


@pytest.fixture
def some_ray(monkeypatch):
    monkeypatch.setattr("ragguard_ray.find_spec", lambda name: object())


def test_without_ray_one_sentence_says_how_to_get_it(no_ray, tmp_path):
    write_runs((world.make_run(case) for case in world.cases(2)), tmp_path / "runs.jsonl")
    done = ragguard("score", tmp_path / "runs.jsonl", "--on", "ray", "--out", tmp_path / "out", code=2)
    assert (
        done.output == "ragguard score: scoring on a Ray cluster needs ray: pip install './ragguard[ray]'\n"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "address", ["127.0.0.1:9", "ray://127.0.0.1:9", "nowhere", "localhost:notaport", ":"]
)
def test_an_address_where_nobody_is_is_found_out_without_ray(some_ray, address):
    with pytest.raises(InvalidInput, match="HOST:PORT of the head of a Ray cluster"):
        RayActors(address).__enter__()
