"""The n-th write, sync or allocation fails, hangs or kills: what was captured is stored, or waits, or is counted."""

import json

import pytest

from tests.faults import injection

pytestmark = [
    pytest.mark.skipif(not injection.can_inject(), reason="no gcc that builds the library of faults"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return injection.build(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def points(library, path_in_memory):
    """Runs a program for every n (or every `stride`-th); how many points it had, where nothing was wrong."""

    def run(program, kind, times=1, durability="full", stride=1):
        done = injection.run(library, program, kind, times, durability, path_in_memory, stride)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert not found["problems"]
        if found.get("unseen"):
            pytest.skip("SQLite is no library of its own here")
        return found["points"]

    return run


@pytest.mark.parametrize(
    ("kind", "least", "stride", "times"),
    [
        ("write", 50, 1, 1),
        ("write", 15, 3, injection.FOR_EVER),
        ("sync", 8, 1, 1),
        ("sync", 8, 1, injection.FOR_EVER),
        ("memory", 10, 101, 1),
        ("memory", 10, 101, injection.FOR_EVER),
    ],
)
def test_the_nth_call_fails_and_nothing_is_lost_uncounted(points, kind, least, stride, times):
    assert points("at_store", kind, times, stride=stride) >= least


@pytest.mark.parametrize("durability", ["fast", "full"])
def test_the_report_agrees_with_what_is_stored_whatever_write_fails(points, durability):
    assert points("at_service", "write", injection.FOR_EVER, durability, stride=13) >= 5
