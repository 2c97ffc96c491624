"""What the Phoenix sink does when Phoenix misbehaves."""

import json
import math

import httpx
import numpy as np
import pytest
from support.scored_runs import two_hops

from ragguard.records import Score
from ragguard.runtime.circuit_breaker import RetrySchedule
from ragguard.telemetry.back_ends import BackEndError, PhoenixSink

ONCE = RetrySchedule(1, first=0.5, longest=8.0, jitter=(1.0, 1.0))


def sink(answer, **more):
    return PhoenixSink("http://phoenix.invalid", transport=httpx.MockTransport(answer), **more)


async def test_a_passing_fault_is_tried_again():
    seen = []

    def answer(request):
        seen.append(request.url.path)
        return httpx.Response(503 if len(seen) == 1 else 200)

    await sink(answer).submit(two_hops())
    assert seen == ["/v1/span_annotations"] * 2 + ["/v1/document_annotations"]


@pytest.mark.parametrize("content", [False, True])
async def test_an_explanation_leaves_only_if_texts_may(content):
    bodies = []

    def answer(request):
        bodies.append(request.content.decode())
        return httpx.Response(200)

    await sink(answer, capture_content=content).submit(two_hops())
    assert ("secret" in "".join(bodies)) is content
    assert "gain minus a third of the harm" in "".join(bodies) or content


async def test_no_document_score_that_phoenix_cannot_show_is_sent():
    sent = []

    def answer(request):
        sent.extend(json.loads(request.content)["data"])
        return httpx.Response(200)

    scored = two_hops()
    for name, value in (("distracting_effect", 0.25), ("mine", -1.0), ("mine", 0.5)):
        scored.scores.append(Score(name, value, "passage", "r", "s0", "doc-0", 1))
    await sink(answer).submit(scored)
    told = [
        (one["name"], one["result"].get("score"), one["result"].get("label"))
        for one in sent
        if one.get("document_position") == 0
    ]
    assert told == [
        ("p_relevant", 0.9, None),
        ("utility", None, "helps"),
        ("distracting_effect", None, "0.25"),
        ("mine", None, "negative"),
        ("mine", 0.5, None),
    ]


async def test_one_odd_value_costs_none_of_the_others():
    sent = []

    def answer(request):
        sent.extend(json.loads(request.content)["data"])
        return httpx.Response(200)

    odd = "lone \ud800 surrogate"
    made = {"scorer": odd, "version": odd, "engine": odd, "prompts": odd, "label": odd}
    scored = two_hops()
    scored.scores = [
        Score(odd, np.float32(0.5), "step", "r", "s0", stderr=math.nan, **made),
        Score("t", math.inf, "step", "r", "s0"),
        Score("grade", np.int64(4), "passage", "r", "s0", "7", np.int64(1), stderr=np.float32(0.5), **made),
    ]
    await sink(answer).submit(scored)
    assert [(one["name"], one["result"]["score"]) for one in sent] == [
        ("lone ? surrogate", 0.5),
        ("grade", 4.0),
    ]
    assert sent[0]["metadata"]["ragguard.telemetry.skipped"] == 1
    assert (sent[1]["metadata"]["stderr"], sent[1]["document_position"]) == (0.5, 0)


@pytest.mark.parametrize("status", [401, 404, 422])
async def test_a_refusal_is_not_repeated(status):
    seen = []

    def answer(request):
        seen.append(request)
        return httpx.Response(status, text="no")

    with pytest.raises(BackEndError, match=str(status)):
        await sink(answer).submit(two_hops())
    assert len(seen) == 1


async def test_a_dead_server_is_one_clear_error(monkeypatch):
    def answer(request):
        raise httpx.ConnectError("refused")

    monkeypatch.setattr("ragguard.telemetry.back_ends.ATTEMPTS", ONCE)
    with pytest.raises(BackEndError, match="Is the server running"):
        await sink(answer).submit(two_hops())


async def test_the_key_is_sent_and_not_shown(monkeypatch):
    seen = []

    def answer(request):
        seen.append(request.headers["authorization"])
        return httpx.Response(500, text="broken")

    monkeypatch.setenv("PHOENIX_API_KEY", "sk-secret")
    monkeypatch.setattr("ragguard.telemetry.back_ends.ATTEMPTS", ONCE)
    with pytest.raises(BackEndError) as error:
        await sink(answer).submit(two_hops())
    assert seen == ["Bearer sk-secret"]
    assert "sk-secret" not in str(error.value)
