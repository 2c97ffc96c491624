"""Budget: counts what was spent, whoever spends it, and refuses once a limit is reached."""

import asyncio
import itertools
import math

import numpy as np
import pytest
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer, Reply
from support.scripted_engine import ScriptedEngine

from ragguard import RagGuard, world
from ragguard.engines.base import EngineInfo
from ragguard.engines.connect import open_engine
from ragguard.engines.entailment import Entailments
from ragguard.engines.layers import Account, Budget, Patience, Price, Retry
from ragguard.errors import BudgetExceeded, EngineError, EngineUnreachable, InvalidInput
from ragguard.records import Usage


async def outcome(call):
    """What a call returns or raises."""
    try:
        return await call
    except EngineError as error:
        return error


async def test_requests_never_go_beyond_their_limit_also_of_calls_at_once():
    engine = ScriptedEngine()
    budget = Budget(engine, Account(requests=3))
    answers = await asyncio.gather(*(outcome(budget.label_probs([f"{i}"], ["X"])) for i in range(10)))
    assert [isinstance(answer, BudgetExceeded) for answer in answers] == [False] * 3 + [True] * 7
    assert len(engine.calls) == budget.account.spent.requests == 3
    with pytest.raises(BudgetExceeded, match=r"3 of 3 requests are spent.*`requests`"):
        await budget.sample(["a"])


async def test_tokens_are_counted_as_reported_and_refused_once_they_are_spent():
    engine = ScriptedEngine()
    budget = Budget(engine, Account(tokens=150))
    drawn = await budget.sample(["word " * 100], n=2, max_tokens=500)
    assert budget.account.spent.tokens == drawn.usage.prompt_tokens + drawn.usage.output_tokens < 150
    await budget.sample(["word " * 100], n=2, max_tokens=500)
    with pytest.raises(BudgetExceeded, match="of 150 tokens are spent"):
        await budget.label_probs(["a"], ["X"])
    assert len(engine.calls) == 2


async def test_money_follows_the_price_of_the_model():
    budget = Budget(ScriptedEngine(), Account(money=0.001, price=Price(prompt=1.0, output=1000.0)))
    answer = await budget.label_probs(["one two three"], ["X"])
    assert answer.usage.prompt_tokens == 3
    assert budget.account.spent.money == pytest.approx((3 * 1.0 + 1 * 1000.0) / 1e6)
    with pytest.raises(BudgetExceeded, match="money"):
        await budget.label_probs(["one two three"], ["X"])
    assert Price(2.0, 3.0).of(1e6, 2e6) == pytest.approx(8.0)


async def test_reply_without_usage_is_counted_by_the_bytes_of_its_prompts():
    class Silent(ScriptedEngine):
        def _usage(self, call, output_tokens):
            return Usage(1, len(call.prompts))

    budget = Budget(Silent(), Account(tokens=10_000))
    await budget.sample(["字" * 100, "x" * 50], n=2, max_tokens=50)
    assert budget.account.spent.tokens == 350


@pytest.mark.parametrize("face", ["vllm", "openai"])
async def test_every_request_that_leaves_counts_also_those_that_fail(face):
    model, count = FakeModel(face=face), itertools.count()

    def handle(request):
        return Reply({"error": {"message": "busy"}}, 503) if next(count) % 3 else model.handle(request)

    async with MisbehavingServer(handle) as server:
        budget = Budget(open_engine(server.url), Account(requests=50))
        engine = Retry(budget, Patience(base=0.001, cap=0.002, trip_after=10_000))
        calls = [engine.label_probs([f"{i} {j}" for j in range(5)], ["A", "B"]) for i in range(30)]
        answers = [await outcome(call) for call in calls]
        assert isinstance(answers[-1], EngineError)
        assert budget.account.spent.requests == 50
        # Those that were about to leave when the limit was reached are counted, and may not have left.
        assert 50 - 5 < len(server.requests) <= 50
        await engine.aclose()


async def test_tokens_that_a_server_reports_are_counted_once():
    async with MisbehavingServer(FakeModel(face="openai", many="ignored").handle) as server:
        account = Account(tokens=10**6)
        engine = Budget(open_engine(server.url), account)
        await engine.info()
        before = account.spent
        usage = (await engine.sample(["Who?"], n=5, max_tokens=6, seed=3)).usage
        assert account.spent.requests - before.requests == usage.requests == 5
        assert account.spent.tokens - before.tokens == usage.prompt_tokens + usage.output_tokens > 5
        await engine.aclose()


async def test_engine_judge_and_entailer_of_a_ragguard_share_one_budget():
    reader, judge, entailer = ScriptedEngine(), ScriptedEngine(), Entailing()
    with RagGuard(reader, judge=judge, entailer=entailer, store=None, budget={"requests": 4}) as rg:
        run = world.make_run(world.cases(1, seed=1, hops=2)[0])
        scored = await rg.score(run)
    assert len(reader.calls) + len(judge.calls) + entailer.calls <= 4
    assert any(failure.error == "BudgetExceeded" for failure in scored.failures)


class Entailing:
    """A judge of entailment that says no to everything."""

    calls = 0

    async def entail(self, pairs, *, deadline=None, priority=0):
        self.calls += 1
        return Entailments(np.tile([0.1, 0.8, 0.1], (len(pairs), 1)), Usage(1, len(pairs), 10))

    async def info(self):
        return EngineInfo("entailing", "scripted", "entailing")

    async def aclose(self):
        pass


async def test_call_that_fails_costs_its_request_and_an_empty_one_nothing():
    engine = ScriptedEngine()
    budget = Budget(engine, Account(requests=5))
    await budget.label_probs([], ["X"])
    assert budget.account.spent.requests == 0
    engine.fault = lambda call: EngineUnreachable("gone")
    with pytest.raises(EngineUnreachable):
        await budget.sample(["some words"])
    assert (budget.account.spent.requests, budget.account.spent.tokens) == (1, 0)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Account(requests=-1), "requests"),
        (lambda: Account(tokens=math.nan), "tokens"),
        (lambda: Account(tokens="many"), "tokens"),
        (lambda: Account(money=5.0), "price"),
        (lambda: Price(math.inf, 0), "prompt"),
        (lambda: Price(0, True), "output"),
    ],
)
def test_limit_or_price_that_is_none_is_refused_by_its_name(make, named):
    with pytest.raises(InvalidInput, match=rf"^{named}: got"):
        make()


@pytest.mark.parametrize("limits", [{"tokens": 2_000}, {"money": 0.002, "price": Price(1.0, 1.0)}])
async def test_what_calls_in_flight_may_cost_is_reserved_so_that_only_the_last_goes_beyond(limits):
    class Slow(ScriptedEngine):
        async def sample(self, *given, **more):
            await asyncio.sleep(0.01)
            return await super().sample(*given, **more)

        def _usage(self, call, output_tokens):
            return Usage(1, 1, prompt_tokens=100, output_tokens=20)

    budget = Budget(Slow(), Account(**limits))
    calls = (budget.sample([f"{number:04} " * 60], n=1, max_tokens=20) for number in range(100))
    ended = await asyncio.gather(*calls, return_exceptions=True)
    spent = budget.account.spent
    assert 2_000 <= spent.tokens < 2_000 + 120
    assert sum(not isinstance(answer, BudgetExceeded) for answer in ended) == spent.tokens / 120
