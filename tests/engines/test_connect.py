"""What `connect` takes, and what it says of what it does not."""

from __future__ import annotations

import re
from contextlib import aclosing

import pytest
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer
from support.scripted_engine import ScriptedEngine

from ragguard import connect
from ragguard.engines.connect import connect_entailer, open_engine
from ragguard.engines.engine import ConnectedEngine, layers_of
from ragguard.engines.foreign import ForeignEngine
from ragguard.engines.http.http_client import HttpClient, key_from_environment, parse_address
from ragguard.engines.layers import Budget, Cache, Coalesce, Priority, Retry
from ragguard.errors import BudgetExceeded, EngineUnreachable, InvalidInput
from ragguard.scorers.settings import ScoringSettings


@pytest.mark.parametrize(
    ("engine", "settings", "allowed"),
    [
        *(
            (value, {}, rf"{re.escape(repr(value))}.*nano, smol, http")
            for value in ("", "nanoo", "nano:", "localhost:8000", "ftp://x", "vllm:", "hf:", "openai")
        ),
        *(
            (value, {}, r"HOST\[:PORT\]")
            for value in (
                "http://",
                "http:///v1",
                "http://host:port/v1",
                "http://host:99999/v1",
                "https://[::1/v1",
            )
        ),
        *((value, {}, "nano, smol, http") for value in (None, 5, object())),
        ("nano", {"model": "x"}, "model: got 'x'"),
        ("nano", {"engine_args": {"x": 1}}, "engine_args"),
        ("vllm:m", {"engine_args": ["x"]}, "engine_args"),
        *(
            ("nano", {"budget": value}, "requests, tokens, money, price")
            for value in ({"token": 5}, 5, "tokens")
        ),
        *(("http://h/v1", {"timeout_s": value}, "more than 0") for value in (0, -1.0, float("nan"), "5")),
    ],
)
def test_argument_that_cannot_be_is_refused_with_what_may_be(engine, settings, allowed):
    with pytest.raises(InvalidInput, match=allowed):
        connect(engine, **settings)


def test_vllm_in_this_process_takes_its_own_arguments(monkeypatch):
    made = []

    def build(model, *, settings):
        made.append((model, settings))
        return ScriptedEngine()

    monkeypatch.setattr("ragguard.engines.local.inprocess.InProcessVllmEngine", build)
    connect("vllm:some/model", engine_args={"max_model_len": 512})
    connect("vllm:some/model")
    assert made == [("some/model", {"max_model_len": 512}), ("some/model", None)]
    ScoringSettings(engine="vllm:some/model", engine_args={"dtype": "float32"}).build()
    assert made[2] == ("some/model", {"dtype": "float32"})


@pytest.mark.parametrize("budget", [None, {"requests": 1}])
def test_a_budget_is_a_layer_only_where_something_is_limited(budget):
    limited = [Budget] if budget else []
    engine = connect(ScriptedEngine(), budget=budget)
    layers = [type(layer) for layer in layers_of(engine)]
    assert layers == [ConnectedEngine, Cache, Coalesce, Priority, Retry, *limited, ForeignEngine]
    assert connect(engine) is engine


async def test_a_budget_goes_around_an_engine_with_layers():
    layered = connect(ScriptedEngine())
    engine = connect(layered, budget={"requests": 1})
    await engine.label_probs(["Who?"], ["A"])
    with pytest.raises(BudgetExceeded):
        await engine.label_probs(["What?"], ["A"])
    assert len(await layered.label_probs(["What?"], ["A"])) == 1
    await engine.aclose()


@pytest.mark.parametrize("value", ["htp://me:p@ss@host/v1", "http://me:p@ss@host:port/v1"])
@pytest.mark.parametrize("make", [connect, connect_entailer])
def test_a_password_in_an_address_that_is_wrong_is_not_shown(make, value):
    with pytest.raises(InvalidInput, match="host") as caught:
        make(value)
    assert "ss@" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "base", "root", "model"),
    [
        ("http://h:8000/v1", "http://h:8000/v1", "http://h:8000", None),
        ("http://h:8000", "http://h:8000/v1", "http://h:8000", None),
        (" http://h/v1/#Qwen/Qwen3-8B ", "http://h/v1", "http://h", "Qwen/Qwen3-8B"),
        ("https://h/v1?model=a%2Fb", "https://h/v1", "https://h", "a/b"),
        ("https://h/v1beta/openai", "https://h/v1beta/openai", "https://h/v1beta/openai", None),
        ("http://[::1]:9/v1", "http://[::1]:9/v1", "http://[::1]:9", None),
    ],
)
def test_an_address_is_taken_apart(url, base, root, model):
    address = parse_address(url)
    assert (address.base, address.root, address.model) == (base, root, model)


def test_general_key_is_sent_over_https_or_to_this_machine_alone(monkeypatch):
    monkeypatch.delenv("RAGGUARD_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "general")
    assert key_from_environment(parse_address("https://api.example/v1")) == "general"
    assert key_from_environment(parse_address("http://localhost:8000/v1")) == "general"
    # In clear text over a network only what was meant for it.
    assert key_from_environment(parse_address("http://gpu-7:8000/v1")) is None
    monkeypatch.setenv("RAGGUARD_API_KEY", "own")
    assert key_from_environment(parse_address("http://gpu-7:8000/v1")) == "own"
    assert key_from_environment(parse_address("https://api.example/v1")) == "own"


async def test_a_proxy_is_not_asked_for_a_server_on_this_machine(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with MisbehavingServer(FakeModel().handle) as server, aclosing(open_engine(server.url)) as engine:
        assert (await engine.info()).model == "fake"


async def test_a_key_in_the_query_of_an_address_is_sent_and_never_shown(caplog):
    async with MisbehavingServer(FakeModel().handle) as server:
        engine = connect(f"{server.url}?api_key=K3yInTheQuery&model=fake")
        info = await engine.info()
        assert {request.query for request in server.requests} == {"api_key=K3yInTheQuery"}
        assert info.location == server.url
        await server.stop()
        with pytest.raises(EngineUnreachable) as raised:
            await open_engine(f"{server.url}?api_key=K3yInTheQuery").info()
        shown = f"{raised.value} {engine!r} {info!r} {caplog.text} {parse_address(server.url + '?k=K3yIn')}"
        assert "K3y" not in shown
        await engine.aclose()


def test_client_without_time_is_refused():
    with pytest.raises(InvalidInput, match="timeout_s"):
        HttpClient("http://localhost/v1", timeout_s=0)


def test_a_cache_whose_folder_is_not_there_is_refused(tmp_path):
    for path in (tmp_path / "no" / "such" / "x.db", tmp_path):
        with pytest.raises(InvalidInput, match=r"cache: got .*in a folder that exists"):
            connect("nano", cache=path)
    assert not (tmp_path / "no").exists()
