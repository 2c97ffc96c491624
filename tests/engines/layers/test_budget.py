"""Budget: refuses before it spends, and counts what was spent."""

import asyncio

import pytest
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer
from support.scripted_engine import ScriptedEngine

from ragguard.engines.connect import connect
from ragguard.engines.layers import Budget, Price
from ragguard.errors import BudgetExceeded, EngineRejected, EngineUnreachable, InvalidInput
from ragguard.records import Usage


class Silent(ScriptedEngine):
    """An engine that does not say what its answers cost."""

    def _usage(self, call, output_tokens):
        return Usage(1, len(call.prompts))


async def test_requests_run_out_before_they_are_sent():
    engine = ScriptedEngine()
    budget = Budget(engine, requests=3)
    answers = await asyncio.gather(
        *(budget.label_probs([f"{i}"], ["X"]) for i in range(10)), return_exceptions=True
    )
    assert [isinstance(answer, BudgetExceeded) for answer in answers] == [False] * 3 + [True] * 7
    assert len(engine.calls) == 3
    assert (budget.spent.requests, budget.left.requests) == (3, 0)
    with pytest.raises(
        BudgetExceeded, match=r"up to 1 requests are needed, and 3 of 3 are spent.*`requests`"
    ):
        await budget.sample(["a"])


async def test_tokens_are_reserved_at_most_and_settled_as_reported():
    engine = ScriptedEngine()
    budget = Budget(engine, tokens=2000)
    text = "word " * 100
    with pytest.raises(BudgetExceeded, match="tokens"):
        await budget.sample([text], n=10, max_tokens=500)
    assert engine.calls == []
    drawn = await budget.sample([text], n=2, max_tokens=500)
    assert budget.spent.tokens == drawn.usage.prompt_tokens + drawn.usage.output_tokens
    assert budget.spent.tokens < 200
    assert budget.left.tokens == 2000 - budget.spent.tokens


async def test_concurrent_calls_cannot_overspend_together():
    engine = ScriptedEngine(gate=asyncio.Event())
    budget = Budget(engine, tokens=1000)
    calls = [asyncio.ensure_future(budget.sample(["a"], n=1, max_tokens=400)) for _ in range(5)]
    await engine.until_running(2)
    assert budget.left.tokens < 200
    engine.gate.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(answer, BudgetExceeded) for answer in answers) == 3
    await budget.sample(["a"], n=1, max_tokens=400)


async def test_money_follows_the_price_of_the_model():
    engine = ScriptedEngine()
    budget = Budget(engine, money=0.01, price=Price(prompt=1.0, output=1000.0))
    with pytest.raises(BudgetExceeded, match="money"):
        await budget.sample(["a"], n=10, max_tokens=64)
    answer = await budget.label_probs(["one two three"], ["X"])
    assert answer.usage.prompt_tokens == 3
    assert budget.spent.money == pytest.approx((3 * 1.0 + 1 * 1000.0) / 1e6)
    assert Price(2.0, 3.0).of(1e6, 2e6) == pytest.approx(8.0)


async def test_what_the_engine_does_not_say_is_counted_as_reserved():
    budget = Budget(Silent(), tokens=10_000)
    await budget.sample(["x" * 300], n=2, max_tokens=50)
    assert budget.spent.tokens >= 100 + 300 / 3


async def test_it_learns_how_many_characters_make_a_token():
    engine = ScriptedEngine()
    budget = Budget(engine, tokens=3000)
    text = "a-rather-long-word-of-this-tokenizer " * 200
    await budget.label_probs([text], ["X"])
    # By the first guess, this text would have cost some 2,500 tokens each time.
    for _ in range(10):
        await budget.label_probs([text], ["X"])
    assert budget.spent.tokens == 11 * 201


async def test_a_server_that_takes_one_prompt_a_request_is_paid_for_by_the_prompt():
    async with MisbehavingServer(FakeModel(face="openai", many="ignored").handle) as server:
        engine = connect(server.url, budget={"requests": 12})
        await engine.info()
        server.requests.clear()
        with pytest.raises(BudgetExceeded, match="up to 13 requests"):
            await engine.label_probs([f"{i}" for i in range(13)], ["A"])
        with pytest.raises(BudgetExceeded, match="up to 20 requests"):
            await engine.sample(["a", "b"], n=10, seed=1)
        assert server.requests == []
        await engine.label_probs([f"{i}" for i in range(12)], ["A"])
        assert len(server.requests) == 12
        await engine.aclose()


async def test_what_sampled_labels_cost_is_learned():
    async with MisbehavingServer(FakeModel(face="openai", top=0, many="ignored").handle) as server:
        engine = connect(server.url, budget={"requests": 30})
        assert (await engine.label_probs(["a"], ["A"])).usage.requests == 20
        with pytest.raises(BudgetExceeded, match="up to 20 requests are needed, and 20 of 30"):
            await engine.label_probs(["b"], ["A"])
        await engine.aclose()


@pytest.mark.parametrize(
    ("error", "tokens"), [(EngineUnreachable("gone"), 0), (EngineRejected("no"), 0), (ValueError("odd"), 1)]
)
async def test_failures_cost_a_request_and_tokens_only_if_work_may_have_been_done(error, tokens):
    engine = ScriptedEngine(fault=lambda call: error)
    budget = Budget(engine, requests=5, tokens=10_000)
    with pytest.raises(type(error)):
        await budget.sample(["some words"], n=10, max_tokens=100)
    assert budget.spent.requests == 1
    assert bool(budget.spent.tokens) is bool(tokens)
    assert budget.left.tokens == 10_000 - budget.spent.tokens


async def test_a_cancelled_call_gives_back_what_it_reserved():
    engine = ScriptedEngine(gate=asyncio.Event())
    budget = Budget(engine, tokens=1000)
    call = asyncio.ensure_future(budget.sample(["a"], n=1, max_tokens=900))
    await engine.until_running(1)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert budget.left.tokens > 950


async def test_no_limit_counts_all_the_same_and_nothing_costs_nothing():
    engine = ScriptedEngine()
    budget = Budget(engine)
    await budget.label_probs([], ["X"])
    assert budget.spent.requests == 0
    await budget.label_probs(["a"], ["X"])
    assert (budget.spent.requests, budget.left.requests, budget.left.money) == (1, None, None)
    assert await budget.info() == await engine.info()
    await budget.aclose()
    assert engine.closed == 1


@pytest.mark.parametrize(
    "wrong", [{"requests": -1}, {"tokens": float("nan")}, {"tokens": "many"}, {"money": 5.0}]
)
def test_bad_settings(wrong):
    with pytest.raises(InvalidInput, match="price" if "money" in wrong else next(iter(wrong))):
        Budget(ScriptedEngine(), **wrong)
