"""Servers that people have: lists of models that say little, keys in other headers, Azure's addresses, quotas."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer, Reply, engine_on
from support.providers import KEY, azure

from ragguard.engines.connect import connect, open_engine
from ragguard.engines.http.server import OpenAIEngine
from ragguard.engines.layers import Patience, Retry
from ragguard.errors import EngineOverloaded, EngineRejected, InvalidInput

LABELS = ("NO-RESPONSE", "A", "B")


def chat(listed=None, *, refusal=None, status=400, **settings):
    """Returns the handler of a server of another make, with `listed` as its reply to a request for its models."""
    model = FakeModel(face="openai", **settings)

    def handle(request):
        if request.path.endswith("/models") and listed is not None:
            return listed
        if refusal is not None and request.path.endswith("completions") and set(request.json) - refusal:
            return Reply({"error": {"message": "Something is not right."}}, status)
        return model.handle(request)

    return handle


@pytest.mark.parametrize(
    ("models", "note"),
    [
        (Reply({"data": []}), "does not list it"),
        (Reply({"error": "boom"}, 500), "500, the server said: boom"),
        (Reply("<html>nothing here</html>", 404), "no list of models"),
        (Reply({"models": ["fake"]}), "no list of models"),
    ],
)
async def test_model_named_by_hand_is_trusted_where_the_list_says_nothing(models, note):
    async with (
        MisbehavingServer(chat(models)) as server,
        aclosing(open_engine(f"{server.url}#fake")) as engine,
    ):
        info = await engine.info()
        assert info.model == "fake"
        assert any("as it was named" in said and note in said for said in info.notes)
        assert (await engine.label_probs(["Who?"], LABELS)).exact


@pytest.mark.parametrize("listed", ["models/fake", "fake:latest", "Fake"])
async def test_model_is_found_under_another_spelling_which_is_said(listed):
    handle = chat(Reply({"data": [{"id": listed}, {"id": "other"}]}), models=(listed,))
    async with MisbehavingServer(handle) as server, aclosing(open_engine(f"{server.url}#fake")) as engine:
        info = await engine.info()
        assert info.model == listed
        assert f"the server spells fake as {listed}" in info.notes


@pytest.mark.parametrize("status", [401, 429, 503])
async def test_refused_key_or_busy_server_is_no_missing_list(status):
    async with (
        MisbehavingServer(chat(Reply({"error": "no"}, status))) as server,
        aclosing(open_engine(f"{server.url}#fake")) as engine,
    ):
        with pytest.raises(EngineRejected if status == 401 else EngineOverloaded, match=str(status)):
            await engine.info()


@pytest.mark.parametrize("limit_name", ["max_tokens", "max_completion_tokens"])
async def test_refusal_that_names_nothing_is_answered_by_the_smallest_body_and_said(limit_name):
    handle = chat(refusal={"model", "messages", limit_name})
    async with MisbehavingServer(handle) as server, aclosing(OpenAIEngine(server.url)) as engine:
        info = await engine.info()
        assert any("Something is not right" in note and "without log-prob" in note for note in info.notes)
        probs = await engine.label_probs(["Who?"], LABELS)
        assert probs.mode == "sampled"
        assert set(server.requests[-1].json) == {"model", "messages", limit_name}


async def test_refusal_of_the_smallest_body_too_is_final_in_the_words_of_the_first():
    async with engine_on(chat(refusal={"nothing"}), OpenAIEngine) as (server, engine):
        with pytest.raises(EngineRejected, match="Something is not right"):
            await engine.info()
        assert len(server.paths("/chat/completions")) == 3


AZURE = "/openai/deployments/judge"


@pytest.mark.parametrize("path", [AZURE, f"{AZURE}/chat/completions", f"{AZURE}/"])
@pytest.mark.parametrize("how", ["api_key", "headers", "environment", "header lines"])
async def test_azure_deployment_by_path_keeps_its_query_and_gets_its_key(monkeypatch, path, how):
    given = {"api_key": {"api_key": KEY}, "headers": {"headers": {"Api-Key": KEY}}}
    if how == "environment":
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    if how == "header lines":
        monkeypatch.setenv("RAGGUARD_HEADERS", f"\napi-key: {KEY}")
    async with MisbehavingServer(azure) as server:
        url = server.url.removesuffix("/v1") + path + "?api-version=2024-10-21"
        async with aclosing(connect(url, **given.get(how, {}))) as engine:
            assert (await engine.info()).model == "judge"
            assert (await engine.label_probs(["Who?"], LABELS)).exact


@pytest.mark.parametrize(
    ("query", "key", "says"),
    [
        ("", KEY, "Azure's deployments want a version: ADDRESS?api-version="),
        ("?api-version=2024-10-21", "other-key", "the key that was given is not accepted"),
        (
            "?api-version=2024-10-21",
            None,
            "give the key as RAGGUARD_API_KEY; AZURE_OPENAI_API_KEY goes only over https or to this machine",
        ),
    ],
)
async def test_refusal_of_azure_names_the_way_out(monkeypatch, query, key, says):
    monkeypatch.delenv("RAGGUARD_API_KEY", raising=False)
    async with MisbehavingServer(azure) as server:
        url = server.url.removesuffix("/v1") + AZURE + query
        async with aclosing(open_engine(url, api_key=key)) as engine:
            with pytest.raises(EngineRejected) as refused:
                await engine.label_probs(["Who?"], LABELS)
    assert says in str(refused.value)
    assert ("give the key as" in str(refused.value)) == (key is None)


async def test_headers_are_sent_with_each_request_and_stand_in_no_error():
    def handle(request):
        return Reply({"error": f"not with {request.headers.get('x-gateway')}"}, 403)

    async with engine_on(handle, open_engine, headers={"X-Gateway": "s3cret-of-mine"}) as (_, engine):
        with pytest.raises(EngineRejected, match="not with …"):
            await engine.info()


@pytest.mark.parametrize(
    ("engine", "headers"),
    [
        ("http://a/v1", {"a b": "c"}),
        ("http://a/v1", {"a": "c\nd"}),
        ("http://a/v1", {"Content-Length": "5"}),
        ("http://a/v1", {"transfer-encoding": "chunked"}),
        ("http://a/v1", "a: b"),
        ("nano", {"a": "b"}),
    ],
)
def test_headers_that_cannot_be_sent_are_refused_at_once(engine, headers):
    with pytest.raises(InvalidInput, match="headers"):
        connect(engine, headers=headers)


@pytest.mark.parametrize(
    "named", [{"code": "insufficient_quota"}, {"type": "insufficient_quota", "code": None}]
)
async def test_quota_that_is_used_up_is_not_asked_again(named):
    async with engine_on(FakeModel(face="openai").handle, connect) as (server, engine):
        await engine.info()
        server.requests.clear()
        server.script([Reply({"error": {"message": "You exceeded your quota", **named}}, 429)] * 9)
        with pytest.raises(EngineRejected, match="waiting does not help"):
            await engine.label_probs(["Who?"], LABELS)
        assert len(server.requests) == 1


async def test_server_that_says_when_to_come_back_is_asked_until_it_answers():
    busy = Reply({"error": {"message": "slow down"}}, 429, {"retry-after": "0.01"})
    async with MisbehavingServer(FakeModel(face="openai").handle) as server:
        engine = Retry(OpenAIEngine(server.url), Patience(base=0.001))
        for question in ("Who?", "And who?"):
            server.script([busy] * 9)
            assert (await engine.label_probs([question], LABELS)).exact
        await engine.aclose()


async def test_long_wait_that_a_server_asks_for_is_said_in_minutes():
    reply = Reply({"error": {"message": "slow down"}}, 429, {"retry-after": "600"})
    async with engine_on(lambda request: reply, connect) as (_, engine):
        with pytest.raises(EngineOverloaded, match="asks to come back in 10 minutes"):
            await engine.info()
