"""Faults of real engines seen through the whole service: data, never an exception, and scored once it is back."""

import asyncio

import pytest
from support.child import in_child
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer, Reply
from support.polling import aeventually

from ragguard import Passage, RagGuard, world
from ragguard.engines.connect import open_engine
from ragguard.engines.layers import Coalesce


def capture(rg, question="who?"):
    with rg.run(question) as run:
        run.retrieved(question, [Passage("Ada Berg founded it", "p1"), Passage("bread", "p2")])
        run.answered("Ada Berg")
    return run


@pytest.fixture
async def server():
    async with MisbehavingServer(FakeModel().handle) as one:
        yield one


@pytest.fixture
async def rg(server, tmp_path):
    one = RagGuard(server.url, store=tmp_path / "s.db", scorers=("utility",), exit_timeout=0.5)
    yield one
    await one.aclose(2)


async def errors(rg, run):
    found = await aeventually(lambda: rg.failures(run.id))
    return {failure.error for failure in found}, {failure.will_retry for failure in found}


async def test_a_healthy_server_scores(rg):
    run = capture(rg)
    assert await rg.aflush(20)
    assert {"utility", "udcg"} <= {score.name for score in rg.scores(run.id)}


async def test_a_server_that_is_away_is_a_failure_and_its_runs_are_scored_when_it_is_back(server, tmp_path):
    # Without the layer that repeats calls, so that the service's own patience is what is seen.
    engine = Coalesce(open_engine(server.url))
    rg = RagGuard(engine, store=tmp_path / "s.db", scorers=("utility",), exit_timeout=0.5)
    first = capture(rg, "before?")
    assert await rg.aflush(20)
    await server.stop()
    while_away = capture(rg, "while it is away?")
    assert (await errors(rg, while_away))[1] == {True}
    assert rg.scores(while_away.id) == []
    await server.start()
    assert await rg.aflush(60)
    assert rg.failures(while_away.id) == []
    assert {s.name for s in rg.scores(while_away.id)} == {s.name for s in rg.scores(first.id)}
    await rg.aclose(2)
    await engine.aclose()


@pytest.mark.parametrize(
    "reply",
    [Reply({"choices": []}), Reply({"error": {"message": "no such parameter"}}, 400)],
    ids=["empty", "refused"],
)
async def test_an_answer_that_is_none_is_a_failure_for_good(rg, server, reply):
    capture(rg, "before?")
    assert await rg.aflush(20)
    healthy, server.handler = server.handler, lambda request: reply
    run = capture(rg, "while it talks nonsense?")
    assert await rg.aflush(30)
    assert rg.scores(run.id) == []
    assert (await errors(rg, run))[1] == {False}
    server.handler = healthy
    after = capture(rg, "after?")
    assert await rg.aflush(20)
    assert rg.scores(after.id)


@pytest.mark.parametrize(
    "reply",
    [
        Reply("<html>oops", 200),
        Reply("default backend - 404", 404),
        Reply({"error": {"message": "no such model"}}, 404),
        Reply({"error": {"code": 502, "message": "overloaded"}}),
    ],
    ids=["page", "ingress", "model", "502 in 200"],
)
async def test_a_disturbance_of_a_server_that_has_answered_costs_no_run(server, tmp_path, reply):
    engine = Coalesce(open_engine(server.url))
    rg = RagGuard(engine, store=tmp_path / "s.db", scorers=("utility",), exit_timeout=0.5)
    capture(rg, "before?")
    assert await rg.aflush(20)
    healthy, server.handler = server.handler, lambda request: reply
    run = capture(rg, "while it is disturbed?")
    assert (await errors(rg, run))[1] == {True}
    server.handler = healthy
    assert await rg.aflush(60)
    assert rg.scores(run.id)
    assert rg.failures(run.id) == []
    await rg.aclose(2)
    await engine.aclose()


async def test_a_server_that_breaks_off_now_and_then_costs_nothing(rg, server):
    capture(rg, "before?")
    assert await rg.aflush(20)
    server.script([Reply(status=503), Reply(reset_after=-1), Reply("{", reset_after=1)])
    run = capture(rg, "on the way?")
    assert await rg.aflush(60)
    assert rg.scores(run.id)
    assert rg.failures(run.id) == []


async def test_a_server_that_hangs_does_not_hold_up_flush_and_close(rg, server):
    capture(rg, "before?")
    assert await rg.aflush(20)
    server.handler = lambda request: Reply(wait_s=600)
    run = capture(rg, "while it hangs?")
    async with asyncio.timeout(30):  # the engine's own patience is longer
        assert not await rg.aflush(0.3)
        report = await rg.aclose(0.3)
    assert report.pending == 1
    assert run.id


def test_nano_works_in_a_worker_that_was_forked_while_it_computed(tmp_path):
    case = world.cases(1, seed=3, hops=1)[0]
    rg = RagGuard("nano", store=tmp_path / "s.db", scorers=("utility",))

    def work(question):
        with rg.run(question) as run:
            run.retrieved(question, [*case.gold, *case.distractors[:6]])
        return run

    for number in range(10):
        work(f"{case.question} {number}")

    def worker():
        run = work("in the child?")
        return bool(rg.flush(60)) and bool(rg.scores(run.id))

    for _ in range(3):
        in_child(worker)
    assert rg.flush(60)
    assert rg.close(10)
