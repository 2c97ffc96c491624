"""The contract on vLLM in this process. Run by `test_inprocess.py` with the Python that has vLLM."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from support.engine_contract import LABELS, PROMPTS, EngineContract, Subject
from support.tiny_checkpoint import make_checkpoint

from ragguard.engines.local.hf import HfEngine
from ragguard.engines.local.inprocess import InProcessVllmEngine
from ragguard.errors import Closed, EngineRejected, InvalidInput, PromptTooLong

SETTINGS = {"enforce_eager": True, "dtype": "float32", "max_model_len": 1024}


class Shared:
    """The one engine, handed out again: starting vLLM takes a minute, and closing is tested at the end."""

    def __init__(self, engine: InProcessVllmEngine) -> None:
        self.sample, self.label_probs, self.info = engine.sample, engine.label_probs, engine.info
        self.continuations = engine.continuations

    async def aclose(self) -> None:
        """Leaves it running."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def engine(folder: Path):
    engine = InProcessVllmEngine(folder, settings=SETTINGS)
    yield engine
    asyncio.run(engine.aclose())


class TestInProcess(EngineContract):
    @pytest.fixture
    async def subject(self, engine: InProcessVllmEngine) -> Subject:
        return Subject(Shared(engine), lambda: Shared(engine))

    async def test_closed_engine_says_that_it_is_closed(self) -> None:
        """At the end of this file, for the one engine there is."""


async def test_engine_describes_itself(engine: InProcessVllmEngine) -> None:
    info = await engine.info()
    assert (info.kind, info.context, info.mode) == ("vllm-inprocess", 1024, "first_token")
    assert {"exact_labels", "sequence", "priority", "seed"} <= info.capabilities


async def test_engine_gives_the_numbers_of_transformers(engine: InProcessVllmEngine, folder: Path) -> None:
    other = HfEngine(folder, device="cpu")
    for mode in ("first_token", "sequence"):
        ours = await engine.label_probs(PROMPTS, LABELS, mode=mode)
        theirs = await other.label_probs(PROMPTS, LABELS, mode=mode)
        np.testing.assert_allclose(ours.p, theirs.p, rtol=1e-2, atol=1e-6)
    await other.aclose()


async def test_priorities_are_taken(engine: InProcessVllmEngine) -> None:
    urgent = await engine.label_probs(PROMPTS, LABELS, priority=-5)
    patient = await engine.label_probs(PROMPTS, LABELS, priority=50)
    np.testing.assert_allclose(urgent.p, patient.p, atol=1e-3)


async def test_a_prompt_too_long_for_its_answer(engine: InProcessVllmEngine) -> None:
    with pytest.raises(PromptTooLong):
        await engine.sample(["Ada " * 1000], n=1, max_tokens=200)


async def test_checkpoint_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="folder"):
        InProcessVllmEngine(tmp_path / "nothing")
    broken = InProcessVllmEngine(make_checkpoint(tmp_path), settings={"no_such_setting": 1})
    with pytest.raises(EngineRejected, match="no_such_setting"):
        await broken.info()
    await broken.aclose()


async def test_closed_engine_says_that_it_is_closed(engine: InProcessVllmEngine) -> None:
    call = asyncio.ensure_future(engine.sample(PROMPTS, n=10, max_tokens=500))
    await asyncio.sleep(0.05)
    await engine.aclose()
    await engine.aclose()
    with pytest.raises(Closed):
        await engine.label_probs(PROMPTS, LABELS)
    with pytest.raises(Closed):
        await asyncio.wait_for(call, 10)
