"""Coalesce: calls merge, and nobody is hurt by it."""

import asyncio
import time
from dataclasses import replace

import numpy as np
import pytest
from support.scripted_engine import ScriptedEngine, unit

from ragguard.engines.base import LabelProbs
from ragguard.engines.layers import Coalesce
from ragguard.errors import (
    EngineProtocolError,
    EngineRejected,
    EngineTimeout,
    EngineUnreachable,
    PromptTooLong,
)


def has(text: str, error: Exception):
    """A fault for every call in which `text` occurs."""
    return lambda call: error if any(text in prompt for prompt in call.texts) else None


async def test_concurrent_calls_become_one_batch_with_the_same_numbers():
    engine = ScriptedEngine()
    layer = Coalesce(engine, window_ms=20)
    texts = [[f"{caller}-{i}" for i in range(caller % 4 + 1)] for caller in range(30)]
    answers = await asyncio.gather(*(layer.label_probs(own, ["A", "B"]) for own in texts))
    assert len(engine.calls) == 1
    for own, answer in zip(texts, answers, strict=True):
        np.testing.assert_array_equal(
            answer.p, [[unit(text, label) / 6 for label in ("A", "B")] for text in own]
        )
        assert answer.usage.prompts == len(own)
    assert sum(answer.usage.requests for answer in answers) == 1
    assert sum(answer.usage.output_tokens for answer in answers) == sum(map(len, texts))
    assert sum(answer.usage.seconds for answer in answers) == pytest.approx(0.001)


async def test_different_questions_do_not_merge():
    engine = ScriptedEngine()
    layer = Coalesce(engine, window_ms=5)
    await asyncio.gather(
        layer.label_probs(["p"], ["A"]),
        layer.label_probs(["p"], ["A"], mode="sequence"),
        layer.label_probs(["p"], ["B"], mode="sequence"),
        layer.label_probs(["p"], ["A"], priority=5),
        layer.sample(["p"], n=2),
        layer.sample(["p"], n=3),
    )
    assert len(engine.calls) == 6


async def test_different_labels_are_asked_together_and_each_caller_gets_its_own():
    engine = ScriptedEngine()
    layer = Coalesce(engine, window_ms=5)
    asked = [(["p", "q"], ["NO"]), (["p", "r"], ["A", "B"]), (["s"], ["B", "NO"])]
    answers = await asyncio.gather(*(layer.label_probs(*one) for one in asked))
    assert [(call.texts, call.labels) for call in engine.calls] == [
        (["p", "q", "p", "r", "s"], ("NO", "A", "B"))
    ]
    for (texts, labels), answer in zip(asked, answers, strict=True):
        expected = np.array([[unit(text, label) / 6 for label in labels] for text in texts])
        np.testing.assert_array_equal(answer.p, expected)
        np.testing.assert_allclose(answer.mass, expected.sum(axis=1))
        assert answer.usage.prompts == len(texts)


@pytest.mark.parametrize(
    ("engine", "labels"),
    [
        (ScriptedEngine(mode="sequence"), [("A",), ("B",)]),
        (ScriptedEngine(capabilities=frozenset({"top_logprobs"})), [("A",), ("B",)]),
        (ScriptedEngine(), [("NO",), ("Norway", "Peru")]),
    ],
    ids=["a label's tokens in a row", "samples or the most probable", "labels that may begin alike"],
)
async def test_where_more_labels_cost_more_or_change_numbers_they_are_asked_apart(engine, labels):
    layer = Coalesce(engine, window_ms=5)
    await asyncio.gather(*(layer.label_probs(["p"], list(asked)) for asked in labels))
    assert [call.labels for call in engine.calls] == labels


async def test_batches_are_bounded():
    engine = ScriptedEngine()
    layer = Coalesce(engine, window_ms=20)
    await asyncio.gather(*(layer.label_probs([f"{i} {j}" for j in range(100)], ["A"]) for i in range(5)))
    assert [len(call.prompts) for call in engine.calls] == [200, 200, 100]


async def test_a_cancelled_caller_takes_nobody_along():
    engine = ScriptedEngine(gate=asyncio.Event())
    layer = Coalesce(engine, window_ms=1)
    going, staying = (asyncio.ensure_future(layer.label_probs([x], ["A"])) for x in "ab")
    await engine.until_running(1)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    engine.gate.set()
    assert (await staying).p[0, 0] == unit("b", "A") / 6


async def test_batch_whose_callers_are_all_cancelled_is_not_sent_or_stops():
    engine = ScriptedEngine(gate=asyncio.Event())
    layer = Coalesce(engine, window_ms=1)
    calls = [asyncio.ensure_future(layer.label_probs([x], ["A"])) for x in "ab"]
    await engine.until_running(1)
    for call in calls:
        call.cancel()
    await engine.until_running(0)
    early = asyncio.ensure_future(layer.label_probs(["c"], ["A"]))
    await asyncio.sleep(0)
    early.cancel()
    await asyncio.gather(early, *calls, return_exceptions=True)
    engine.gate.set()
    await layer.label_probs(["d"], ["A"])
    assert [call.texts for call in engine.calls] == [["a", "b"], ["d"]]


@pytest.mark.parametrize(
    "error", [PromptTooLong("too long", limit=9), EngineRejected("bad prompt"), ValueError("odd")]
)
async def test_a_bad_prompt_fails_its_own_caller_only(error):
    engine = ScriptedEngine(fault=has("bad", error))
    layer = Coalesce(engine, window_ms=10)
    good, bad, fine = await asyncio.gather(
        *(layer.label_probs([x], ["A"]) for x in ("good", "bad", "fine")), return_exceptions=True
    )
    assert bad is error
    assert isinstance(good, LabelProbs)
    assert isinstance(fine, LabelProbs)
    assert len(engine.calls) == 4


@pytest.mark.parametrize("error", [EngineUnreachable("gone"), ConnectionError("gone")])
async def test_a_dead_server_is_not_asked_once_for_each_caller(error):
    engine = ScriptedEngine(fault=lambda call: error)
    layer = Coalesce(engine, window_ms=10)
    answers = await asyncio.gather(*(layer.label_probs([x], ["A"]) for x in "abc"), return_exceptions=True)
    assert all(answer is error for answer in answers)
    assert len(engine.calls) == 1


async def test_each_caller_has_its_own_deadline():
    engine = ScriptedEngine(gate=asyncio.Event())
    layer = Coalesce(engine, window_ms=1)
    patient = asyncio.ensure_future(layer.label_probs(["a"], ["A"]))
    with pytest.raises(EngineTimeout, match="merged call"):
        await layer.label_probs(["b"], ["A"], deadline=time.monotonic() + 0.05)
    assert engine.calls[0].deadline is None
    engine.gate.set()
    await patient
    with pytest.raises(EngineTimeout):
        await layer.label_probs(["b"], ["A"], deadline=time.monotonic() - 1)
    soon, later = time.monotonic() + 5, time.monotonic() + 9
    await asyncio.gather(
        layer.label_probs(["c"], ["A"], deadline=later), layer.label_probs(["d"], ["A"], deadline=soon)
    )
    assert engine.calls[-1].deadline == later


async def test_merged_callers_keep_their_own_cuts_and_bounds():
    class Bounding(ScriptedEngine):
        async def label_probs(self, prompts, labels, mode=None, deadline=None, priority=0):
            answer = await super().label_probs(prompts, labels, mode, deadline, priority)
            bound = np.array([["rare" in text] for text in self.calls[-1].texts])
            return LabelProbs(answer.p, False, bound=bound, usage=answer.usage, truncated={1: 7})

    layer = Coalesce(Bounding(), window_ms=10)
    first, second = await asyncio.gather(
        layer.label_probs(["plain"], ["A"]), layer.label_probs(["rare", "plain"], ["A"])
    )
    assert (first.exact, first.truncated) == (True, {})
    assert (second.exact, second.truncated) == (False, {0: 7})
    np.testing.assert_array_equal(second.bound, [[True], [False]])


class WrongReplies(ScriptedEngine):
    """Gives replies whose parts do not fit together."""

    async def label_probs(self, prompts, labels, *more):
        reply = await super().label_probs(prompts, labels, *more)
        return replace(reply, bound=np.zeros((1, 1), dtype=bool))


async def test_bounds_and_errors_of_another_shape_than_the_labels_are_refused():
    with pytest.raises(EngineProtocolError, match=r"2 prompts with 2 labels .* shape \(1, 1\)"):
        await Coalesce(WrongReplies()).label_probs(["a", "b"], ["A", "B"])
