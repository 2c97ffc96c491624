"""The contract on every engine that can run here; against a real vLLM with `make test-vllm`."""

from __future__ import annotations

import asyncio

import pytest
from support.decision_server import FORMS, DecisionServer
from support.engine_contract import EngineContract, Subject
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer
from support.tiny_checkpoint import make_checkpoint
from support.tiny_gguf import make_gguf

from ragguard.engines.connect import connect, open_engine
from ragguard.engines.http.server import OpenAIEngine, VllmEngine

pytestmark = pytest.mark.slow


class TestNano(EngineContract):
    @pytest.fixture
    async def subject(self):
        return Subject(open_engine("nano"), lambda: open_engine("nano"))


class TestConnected(EngineContract):
    """The usual stack of layers is an engine like any other."""

    @pytest.fixture
    async def subject(self):
        engine = connect("nano")
        yield Subject(engine, lambda: connect("nano"))
        await engine.aclose()


def kept_open(address, **what):
    """Yields one engine for all tests: looking at a model costs more than most of them, and it serves any loop."""
    engine = open_engine(address)
    yield Subject(engine, lambda: open_engine(address), callers=50, **what)
    asyncio.run(engine.aclose())


@pytest.fixture(scope="module")
def transformers(tmp_path_factory):
    yield from kept_open(f"hf:{make_checkpoint(tmp_path_factory.mktemp('tiny'))}")


class TestTransformers(EngineContract):
    @pytest.fixture
    def subject(self, transformers):
        return transformers


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    yield from kept_open(f"gguf:{make_gguf(tmp_path_factory.mktemp('gguf'))[1]}", words_are_tokens=False)


class TestGguf(EngineContract):
    @pytest.fixture
    def subject(self, gguf):
        return gguf


@pytest.mark.vllm
class TestVllm(EngineContract):
    @pytest.fixture
    async def subject(self, vllm_server):
        engine = VllmEngine(vllm_server.url)
        yield Subject(engine, lambda: VllmEngine(vllm_server.url))
        await engine.aclose()


@pytest.mark.vllm
class TestVllmAsAnyServer(EngineContract):
    """The same server asked as if it were any OpenAI-compatible one."""

    @pytest.fixture
    async def subject(self, vllm_server):
        engine = OpenAIEngine(vllm_server.url)
        yield Subject(engine, lambda: OpenAIEngine(vllm_server.url))
        await engine.aclose()


class TestAnyServer(EngineContract):
    """Plain chat completions that show their five most probable tokens."""

    @pytest.fixture
    async def subject(self):
        async with MisbehavingServer(FakeModel(face="openai", top=5).handle) as server:
            engine = open_engine(server.url)
            yield Subject(engine, lambda: open_engine(server.url))
            await engine.aclose()


class TestLlamaCpp(EngineContract):
    """A llama.cpp server, which tells how probable a given text is by a grammar of token ids."""

    @pytest.fixture
    async def subject(self):
        async with MisbehavingServer(FakeModel(face="llamacpp").handle) as server:
            engine = open_engine(server.url)
            yield Subject(engine, lambda: open_engine(server.url))
            await engine.aclose()


class TestServerWithoutProbabilities(EngineContract):
    """Plain chat completions that show none: shares of sampled answers."""

    @pytest.fixture
    async def subject(self):
        async with MisbehavingServer(FakeModel(face="openai", top=0).handle) as server:
            engine = OpenAIEngine(server.url)
            yield Subject(engine, lambda: OpenAIEngine(server.url))
            await engine.aclose()


@pytest.mark.parametrize("form", FORMS)
class TestDecisions(EngineContract):
    """Servers of typed questions judge, and refuse to read."""

    @pytest.fixture
    async def subject(self, form):
        async with MisbehavingServer(DecisionServer(form).handle) as server:
            address = f"{'systemone' if form == 'systemone' else 'decisions'}:{server.url}"
            engine = open_engine(address)
            yield Subject(engine, lambda: open_engine(address), reads=False)
            await engine.aclose()
