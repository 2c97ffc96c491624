"""Budget: refuses before it spends, and counts what was spent."""

import asyncio
import itertools
import math

import numpy as np
import pytest
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer, Reply
from support.scripted_engine import ScriptedEngine

from ragguard import RagGuard, world
from ragguard.engines.base import EngineInfo, LabelProbs
from ragguard.engines.connect import connect, open_engine
from ragguard.engines.entailment.entailer import Entailments
from ragguard.engines.layers import Account, Budget, Patience, Price, Retry
from ragguard.errors import BudgetExceeded, EngineError, EngineRejected, EngineUnreachable, InvalidInput
from ragguard.records import Usage


class Silent(ScriptedEngine):
    """An engine that does not say what its answers cost."""

    def _usage(self, call, output_tokens):
        return Usage(1, len(call.prompts))


async def test_requests_run_out_before_they_are_sent():
    engine = ScriptedEngine()
    budget = Budget(engine, Account(requests=3))
    answers = await asyncio.gather(
        *(budget.label_probs([f"{i}"], ["X"]) for i in range(10)), return_exceptions=True
    )
    assert [isinstance(answer, BudgetExceeded) for answer in answers] == [False] * 3 + [True] * 7
    assert len(engine.calls) == 3
    assert (budget.account.spent.requests, budget.account.left.requests) == (3, 0)
    with pytest.raises(
        BudgetExceeded, match=r"up to 1 requests are needed, and 3 of 3 are spent.*`requests`"
    ):
        await budget.sample(["a"])


async def test_tokens_are_reserved_at_most_and_settled_as_reported():
    engine = ScriptedEngine()
    budget = Budget(engine, Account(tokens=2000))
    text = "word " * 100
    with pytest.raises(BudgetExceeded, match="tokens"):
        await budget.sample([text], n=10, max_tokens=500)
    assert engine.calls == []
    drawn = await budget.sample([text], n=2, max_tokens=500)
    assert budget.account.spent.tokens == drawn.usage.prompt_tokens + drawn.usage.output_tokens
    assert budget.account.spent.tokens < 200
    assert budget.account.left.tokens == 2000 - budget.account.spent.tokens


async def test_concurrent_calls_cannot_overspend_together():
    engine = ScriptedEngine(gate=asyncio.Event())
    budget = Budget(engine, Account(tokens=1000))
    calls = [asyncio.ensure_future(budget.sample(["a"], n=1, max_tokens=400)) for _ in range(5)]
    await engine.until_running(2)
    assert budget.account.left.tokens < 200
    engine.gate.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(answer, BudgetExceeded) for answer in answers) == 3
    await budget.sample(["a"], n=1, max_tokens=400)


async def test_money_follows_the_price_of_the_model():
    engine = ScriptedEngine()
    budget = Budget(engine, Account(money=0.01, price=Price(prompt=1.0, output=1000.0)))
    with pytest.raises(BudgetExceeded, match="money"):
        await budget.sample(["a"], n=10, max_tokens=64)
    answer = await budget.label_probs(["one two three"], ["X"])
    assert answer.usage.prompt_tokens == 3
    assert budget.account.spent.money == pytest.approx((3 * 1.0 + 1 * 1000.0) / 1e6)
    assert Price(2.0, 3.0).of(1e6, 2e6) == pytest.approx(8.0)


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf, "1", None, True])
def test_a_price_that_is_none_is_refused(wrong):
    with pytest.raises(InvalidInput, match=r"^prompt: got"):
        Price(wrong, 0)
    with pytest.raises(InvalidInput, match=r"^output: got"):
        Price(0, wrong)


async def test_reply_without_usage_is_counted_as_reserved():
    budget = Budget(Silent(), Account(tokens=10_000))
    await budget.sample(["x" * 300], n=2, max_tokens=50)
    assert budget.account.spent.tokens >= 100 + 300 / 3


class Dense(ScriptedEngine):
    """A model whose tokens are the bytes of a text, as some are for other scripts, digits and symbols."""

    def _usage(self, call, output_tokens):
        read = sum(len(text.encode()) for text in call.texts)
        return Usage(1, len(call.prompts), read, output_tokens)


async def test_dense_text_never_overspends():
    engine = Dense()
    budget = Budget(engine, Account(tokens=20_000))
    texts = [f"{i} " + "字0🜁" * 40 for i in range(200)]
    calls = [budget.label_probs(texts[at : at + 5], ["X"]) for at in range(0, 200, 5)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(answer) for answer in answers} == {LabelProbs, BudgetExceeded}
    assert 10_000 < budget.account.spent.tokens <= 20_000
    assert budget.account.spent.tokens == sum(
        engine._usage(call, len(call.texts)).prompt_tokens + len(call.texts) for call in engine.calls
    )


async def test_prose_goes_out_in_pieces_until_the_budget_is_used():
    engine = ScriptedEngine()  # a word is a token: a sixth of the bound
    budget = Budget(engine, Account(tokens=20_000))
    texts = [f"{i} " + "words " * 200 for i in range(90)]
    answer = await budget.label_probs(texts, ["X"])
    assert len(answer) == 90
    assert [call.texts for call in engine.calls] != [texts]
    assert [text for call in engine.calls for text in call.texts] == texts
    assert 18_000 < budget.account.spent.tokens <= 20_000


async def test_call_beyond_the_whole_budget_is_refused_unsent():
    engine = ScriptedEngine()
    with pytest.raises(BudgetExceeded, match="tokens"):
        await Budget(engine, Account(tokens=2_000)).label_probs(["words " * 200] * 90, ["X"])
    assert engine.calls == []


async def test_a_server_that_takes_one_prompt_a_request_is_paid_for_by_the_prompt():
    async with MisbehavingServer(FakeModel(face="openai", many="ignored").handle) as server:
        looking = await requests_to_look(server)
        engine = connect(server.url, budget={"requests": looking + 12})
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


async def requests_to_look(server):
    """How many requests it takes to find out what is behind the address."""
    engine = connect(server.url)
    await engine.info()
    await engine.aclose()
    return len(server.requests)


async def test_sampled_labels_are_reserved_as_sampled():
    async with MisbehavingServer(FakeModel(face="openai", top=0, many="ignored").handle) as server:
        looking = await requests_to_look(server)
        engine = connect(server.url, budget={"requests": looking + 30})
        assert (await engine.label_probs(["a"], ["A"])).usage.requests == 20
        with pytest.raises(BudgetExceeded, match=rf"up to 20 requests are needed, and {looking + 20} of"):
            await engine.label_probs(["b"], ["A"])
        await engine.aclose()


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
        assert budget.account.spent.requests == len(server.requests) <= 50
        assert face == "openai" or len(server.requests) == 50
        await engine.aclose()


async def test_looking_at_the_server_counts():
    async with MisbehavingServer(FakeModel(face="vllm").handle) as server:
        engine = connect(server.url, budget={"requests": 3})
        with pytest.raises(BudgetExceeded):
            await engine.info()
        assert len(server.requests) == 3
        await engine.aclose()


async def test_one_account_bounds_all_engines_that_share_it():
    account = Account(requests=5)
    first, second = ScriptedEngine(), ScriptedEngine()
    engines = [connect(first, budget=account), connect(second, budget=account)]
    answers = [await outcome(engine.label_probs([f"{i}"], ["A"])) for i in range(5) for engine in engines]
    assert len(first.calls) + len(second.calls) == 5 == account.spent.requests
    assert sum(isinstance(answer, BudgetExceeded) for answer in answers) == 5


async def outcome(call):
    """What a call returns or raises."""
    try:
        return await call
    except EngineError as error:
        return error


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


@pytest.mark.parametrize(
    ("error", "tokens"), [(EngineUnreachable("gone"), 0), (EngineRejected("no"), 0), (ValueError("odd"), 1)]
)
async def test_failures_cost_a_request_and_tokens_only_if_work_may_have_been_done(error, tokens):
    engine = ScriptedEngine(fault=lambda call: error)
    budget = Budget(engine, Account(requests=5, tokens=10_000))
    with pytest.raises(type(error)):
        await budget.sample(["some words"], n=10, max_tokens=100)
    assert budget.account.spent.requests == 1
    assert bool(budget.account.spent.tokens) is bool(tokens)
    assert budget.account.left.tokens == 10_000 - budget.account.spent.tokens


async def test_a_cancelled_call_gives_back_what_it_reserved():
    engine = ScriptedEngine(gate=asyncio.Event())
    budget = Budget(engine, Account(tokens=1000))
    call = asyncio.ensure_future(budget.sample(["a"], n=1, max_tokens=900))
    await engine.until_running(1)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert budget.account.left.tokens > 900


async def test_budget_without_limits_counts_and_empty_calls_cost_nothing():
    engine = ScriptedEngine()
    budget = Budget(engine, Account())
    await budget.label_probs([], ["X"])
    assert budget.account.spent.requests == 0
    await budget.label_probs(["a"], ["X"])
    assert (budget.account.spent.requests, budget.account.left.requests, budget.account.left.money) == (
        1,
        None,
        None,
    )
    assert await budget.info() == await engine.info()
    await budget.aclose()
    assert engine.closed == 1


@pytest.mark.parametrize(
    "wrong", [{"requests": -1}, {"tokens": float("nan")}, {"tokens": "many"}, {"money": 5.0}]
)
def test_bad_settings(wrong):
    with pytest.raises(InvalidInput, match="price" if "money" in wrong else next(iter(wrong))):
        Account(**wrong)
