"""Every way in which a server can fail, as one clear error of ours; and nothing is lost by it."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from contextlib import aclosing

import numpy as np
import pytest
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer, Reply, engine_on

from ragguard.engines.connect import connect, open_engine
from ragguard.engines.http.server import OpenAIEngine, VllmEngine
from ragguard.engines.layers import Retry
from ragguard.engines.layers.retry import Patience
from ragguard.errors import (
    EngineError,
    EngineOverloaded,
    EngineProtocolError,
    EngineRejected,
    EngineTimeout,
    EngineUnreachable,
)

LABELS = ("NO-RESPONSE", "A", "B")
KEY = "sk-very-secret-0123456789"


@pytest.fixture(params=["vllm", "openai"])
async def pair(request):
    """A server that behaves until told otherwise, and an engine that has got to know it."""
    async with (
        MisbehavingServer(FakeModel(face=request.param).handle) as server,
        aclosing(VllmEngine(server.url) if request.param == "vllm" else OpenAIEngine(server.url)) as engine,
    ):
        assert await works(engine)
        server.requests.clear()
        yield server, engine


async def failure(engine, **arguments) -> EngineError:
    with pytest.raises(EngineError) as caught:
        await engine.label_probs(["Who?"], LABELS, **arguments)
    return caught.value


async def works(engine) -> bool:
    probs = await engine.label_probs(["Who?"], LABELS)
    return bool(np.isclose(probs.p[0, 1], 0.6))


async def test_address_without_a_listener_is_unreachable():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        engine = open_engine(f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
        error = await failure(engine)
        assert isinstance(error, EngineUnreachable)
        assert error.retryable
        assert f"127.0.0.1:{taken.getsockname()[1]}" in str(error)
        assert "check the address" in str(error)
        await engine.aclose()


@pytest.mark.parametrize("after", [-1, 0, 40])
async def test_a_connection_that_is_reset(pair, after):
    server, engine = pair
    server.script([Reply({"choices": [{}] * 50}, reset_after=after)])
    error = await failure(engine)
    assert isinstance(error, EngineUnreachable)
    assert "broke" in str(error)
    assert await works(engine)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({}, None),
        ({"retry-after": "soon"}, None),
    ],
)
async def test_too_many_requests(pair, headers, seconds):
    server, engine = pair
    server.script([Reply({"error": {"message": "slow down"}}, 429, headers)])
    error = await failure(engine)
    assert isinstance(error, EngineOverloaded)
    assert error.retry_after == seconds
    assert "slow down" in str(error)


@pytest.mark.parametrize("slow", [Reply({}, wait_s=3600), Reply({"choices": ["x" * 80]}, drip_s=3600)])
async def test_slow_headers_and_a_slow_body_meet_the_deadline(pair, slow):
    server, engine = pair
    server.script([slow])
    async with asyncio.timeout(30):  # the engine's own patience is longer
        error = await failure(engine, deadline=time.monotonic() + 0.3)
    assert isinstance(error, EngineTimeout)
    assert await works(engine)


async def test_without_a_deadline_the_engines_own_patience_counts():
    async with engine_on(FakeModel().handle, VllmEngine, timeout_s=0.5) as (server, engine):
        await engine.info()
        server.script([Reply({}, wait_s=30)])
        assert isinstance(await failure(engine), EngineTimeout)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "null",
        "[]",
        {"choices": [1]},
        {"choices": [{"index": "0", "text": "A"}]},
        {
            "choices": [
                {"index": 0, "text": "A", "message": {"content": 5}, "logprobs": {"top_logprobs": [{}]}}
            ]
        },
    ],
)
async def test_an_answer_that_is_none(pair, body):
    server, engine = pair
    server.script([Reply(body)])
    assert isinstance(await failure(engine), EngineProtocolError)
    assert await works(engine)


def with_logprob(value):
    """Both dialects' answers with one log-probability that is not one."""
    text = json.dumps(value)
    return (
        '{"choices": [{"index": 0, "text": "A", "finish_reason": "length", "message": {"content": "A"}, "logprobs": '
        f'{{"top_logprobs": [{{"token_id:1": {text}}}], "token_logprobs": [{text}], "content": '
        f'[{{"token": "A", "logprob": {text}, "top_logprobs": [{{"token": "A", "logprob": {text}}}]}}]}}}}]}}'
    )


@pytest.mark.parametrize("value", [float("nan"), 0.5, "-1.0", None, True, float("inf")])
async def test_log_probabilities_that_cannot_be(pair, value):
    server, engine = pair
    server.script([Reply(with_logprob(value))] * 2)
    assert isinstance(await failure(engine), EngineProtocolError)
    with pytest.raises(EngineProtocolError):
        await engine.sample(["Who?"], n=1, max_tokens=1)


@pytest.mark.parametrize("count", [0, 2, 3, 5])
async def test_a_wrong_number_of_choices(pair, count):
    server, engine = pair
    choice = {
        "text": "A",
        "finish_reason": "stop",
        "message": {"content": "A"},
        "logprobs": {"token_logprobs": [-1.0]},
    }
    server.script([Reply({"choices": [{**choice, "index": i} for i in range(count)]})])
    with pytest.raises(
        EngineProtocolError, match=f"4 choices were asked for and {count} came|a list of `choices`"
    ):
        await engine.sample(["Who?"], n=4, max_tokens=3)


async def test_an_answer_that_the_server_broke_off():
    async with MisbehavingServer(FakeModel().handle) as server, aclosing(VllmEngine(server.url)) as engine:
        await engine.info()
        choice = {"index": 0, "text": "A", "finish_reason": "abort", "logprobs": {"token_logprobs": [-1.0]}}
        server.script([Reply({"choices": [choice]})], "/completions")
        with pytest.raises(EngineUnreachable, match=r"http://127\.0\.0\.1:\d+/v1/completions: .*abort"):
            await engine.sample(["Who?"], n=1)


@pytest.mark.parametrize("status", [301, 400, 401, 403, 413, 422])
async def test_refusals_are_not_worth_repeating(pair, status):
    server, engine = pair
    server.script([Reply({"error": "no, because"}, status, {"location": "https://elsewhere.invalid/"})])
    error = await failure(engine)
    assert isinstance(error, EngineRejected)
    assert not error.retryable
    assert "no, because" in str(error)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply({"error": "request timeout"}, 408), EngineOverloaded),
        (Reply("<html>oops</html>", 503), EngineOverloaded),
        (Reply({"error": {"code": 502, "message": "upstream overloaded"}}), EngineOverloaded),
        (Reply({"error": {"code": "429", "message": "slow down"}}), EngineOverloaded),
        (Reply("<html>Back soon</html>"), EngineProtocolError),
        (Reply('{"choices": ['), EngineProtocolError),
        (Reply("default backend - 404", 404), EngineRejected),
    ],
    ids=["408", "503", "502 in 200", "429 in 200", "page", "cut", "ingress"],
)
async def test_transient_fault_is_retried(pair, reply, kind):
    server, engine = pair
    server.script([reply])
    error = await failure(engine)
    assert isinstance(error, kind)
    assert (error.retryable, error.repeated) == (True, False)
    server.script([reply])
    assert await works(Retry(engine, Patience(base=0.01)))


async def test_a_model_that_is_gone_is_worth_another_run_but_no_repeated_call(pair):
    """Another model's answer to the same call would be kept as one of the first."""
    server, engine = pair
    server.script([Reply({"error": {"message": "The model `fake` does not exist."}}, 404)])
    with pytest.raises(EngineRejected, match="does not exist") as caught:
        await Retry(engine, Patience(base=0.01)).label_probs(["Who?"], LABELS)
    assert (caught.value.retryable, len(server.requests)) == (True, 1)
    assert await works(engine)


@pytest.mark.parametrize("face", ["vllm", "openai"])
@pytest.mark.parametrize("open_", [connect, open_engine])
async def test_a_restart_with_another_model_between_two_calls_is_noticed(face, open_):
    model = FakeModel(face=face)
    async with MisbehavingServer(model.handle) as server, aclosing(open_(server.url)) as engine:
        assert await works(engine)
        await server.stop()
        model.models = ("another",)
        await server.start()
        with pytest.raises(EngineError, match=r"`fake` does not exist|connection"):
            await engine.label_probs(["What?"], LABELS)
        assert await works(engine)
        assert (await engine.info()).model == "another"


@pytest.mark.usefixtures("users_attempts")
async def test_the_usual_layers_ride_out_a_restart():
    async with MisbehavingServer(FakeModel().handle) as server, aclosing(connect(server.url)) as engine:
        assert await works(engine)
        await server.stop()
        call = asyncio.create_task(engine.label_probs(["And who else?"], LABELS))
        await asyncio.sleep(0.1)
        assert not call.done()
        await server.start()
        assert (await call).p[0, 1] == pytest.approx(0.6)


async def test_a_prompt_that_always_fails_is_not_repeated_by_two_layers_nor_are_the_others():
    model = FakeModel(face="openai")

    def handle(request):
        return Reply({}, 503) if b"never" in request.body else model.handle(request)

    async with MisbehavingServer(handle) as server, aclosing(connect(server.url)) as engine:
        await engine.info()
        server.requests.clear()
        prompts = [f"prompt {index}" for index in range(6)] + ["never"]
        with pytest.raises(EngineOverloaded, match=r"given up after \d+ attempts") as caught:
            await engine.label_probs(prompts, ["A"])
        assert str(caught.value).count("given up") == 1
        assert caught.value.retryable
        asked = [request.json["messages"][0]["content"] for request in server.requests]
        assert 5 <= asked.count("never") <= 15  # oftener while others are answered
        assert max(asked.count(prompt) for prompt in prompts[:-1]) == 1


async def test_a_model_that_the_server_does_not_have():
    async with MisbehavingServer(FakeModel(models=("one", "two")).handle) as server:
        for engine, says in (
            (open_engine(f"{server.url}#three"), "has no model 'three'; it has: one, two"),
            (open_engine(server.url), "say which, as"),
        ):
            error = await failure(engine)
            assert isinstance(error, EngineRejected)
            assert says in str(error)
            await engine.aclose()
        engine = open_engine(f"{server.url}?model=two")
        assert (await engine.info()).model == "two"
        assert await works(engine)
        await engine.aclose()


async def test_the_key_is_sent_and_never_shown(pair, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    server, _ = pair
    monkeypatch.setenv("RAGGUARD_API_KEY", KEY)
    engine = open_engine(server.url)
    assert await works(engine)
    assert all(request.headers["authorization"] == f"Bearer {KEY}" for request in server.requests)
    server.script([Reply({"error": {"message": f"Incorrect API key provided: {KEY}"}}, 401)])
    error = await failure(engine)
    seen: BaseException | None = error
    while seen is not None:
        assert KEY not in f"{seen} {seen!r}"
        seen = seen.__cause__ or seen.__context__
    assert "RAGGUARD_API_KEY" in str(error)
    info = await engine.info()
    assert KEY not in f"{engine!r} {info!r} {caplog.text}"
    await engine.aclose()


async def test_credentials_in_the_address_are_sent_and_never_shown(pair, caplog):
    caplog.set_level(logging.DEBUG)
    server, _ = pair
    engine = open_engine(server.url.replace("http://", f"http://user:{KEY}@"))
    assert await works(engine)
    assert server.requests[-1].headers["authorization"].startswith("Basic ")
    info = await engine.info()
    assert KEY not in f"{engine!r} {info!r} {caplog.text}"
    await engine.aclose()


async def test_first_use_is_shared_and_a_failed_one_is_repeated():
    async with MisbehavingServer(FakeModel().handle) as server, aclosing(VllmEngine(server.url)) as engine:
        server.script([Reply({}, 503)], "/models")
        failed = await asyncio.gather(*(engine.info() for _ in range(5)), return_exceptions=True)
        assert all(isinstance(error, EngineOverloaded) for error in failed)
        server.requests.clear()
        infos = await asyncio.gather(*(engine.info() for _ in range(50)))
        assert len({info.fingerprint for info in infos}) == 1
        assert len(server.paths("/models")) == 1


async def test_a_hasty_first_caller_does_not_hurt_a_patient_one():
    async with MisbehavingServer(FakeModel().handle) as server:
        server.script([Reply({"data": [{"id": "fake", "owned_by": "vllm"}]}, wait_s=0.4)], "/models")
        engine = VllmEngine(server.url)
        patient = asyncio.create_task(engine.label_probs(["Who?"], LABELS))
        hasty = await failure(engine, deadline=time.monotonic() + 0.1)
        assert isinstance(hasty, EngineTimeout)
        assert (await patient).p[0, 1] == pytest.approx(0.6)
        await engine.aclose()
