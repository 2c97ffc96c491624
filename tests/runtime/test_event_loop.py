"""Async calls on an event loop that is not asyncio's are refused in one sentence; capture goes on there."""

from __future__ import annotations

import pytest

from ragguard import Passage, RagGuard, Run, connect
from ragguard.errors import WrongEventLoop


def drive(coroutine):
    """Runs a coroutine as a foreign loop does: no loop of asyncio's is running."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration as done:
        return done.value


@pytest.fixture
def rg():
    rg = RagGuard("nano", store=None, scorers=())
    yield rg
    rg.close(2.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda rg: rg.score(Run(question="who?")),
        lambda rg: rg.score(Run(question="who?"), dry_run=True),
        lambda rg: rg.aflush(1),
        lambda rg: rg.aclose(1),
        lambda rg: connect("nano").sample(["Who?"]),
        lambda rg: connect("nano").label_probs(["Who?"], ["A", "B"]),
    ],
)
def test_call_under_another_event_loop_names_the_way_out(rg, call):
    with pytest.raises(WrongEventLoop, match=r"asyncio.*trio\.to_thread"):
        drive(call(rg))


@pytest.mark.parametrize("durability", ["fast", "full"])
def test_capture_works_on_any_loop(durability, tmp_path):
    rg = RagGuard("nano", store=tmp_path / "s.db", scorers=(), durability=durability)

    async def application():
        async with rg.run("who?") as run:
            run.retrieved("hop", [Passage("a")])

    drive(application())
    assert rg.flush(10)
    assert [len(run.steps) for run in rg.runs()] == [1]
    rg.close()
