"""nano exported and loaded by transformers: the same numbers and the same samples as nano on NumPy."""

import numpy as np
import pytest

from ragguard.engines.local.hf import HfEngine
from ragguard.engines.nano.nano_engine import NanoEngine, write_checkpoint
from ragguard.engines.prompts import load_prompts

pytest.importorskip("torch", reason="the extra hf is not installed")
NANO = load_prompts("nano")
PASSAGES = ("Ada Berg founded Norvik.", "Norvik is based in Oslo.", "Ole Dahl was born in Lyon in 1922.")
PROMPTS = [NANO.render("abstention", [passage], query="Who founded Norvik?") for passage in PASSAGES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nano")
    write_checkpoint(folder)
    return folder


@pytest.fixture
async def engines(folder):
    engines = HfEngine(folder, device="cpu"), NanoEngine()
    yield engines
    for engine in engines:
        await engine.aclose()


async def test_exported_nano_is_recognised_by_its_vocabulary(engines):
    exported, nano = [await engine.info() for engine in engines]
    assert (exported.prompts, exported.mode, exported.context) == ("nano", nano.mode, nano.context)
    assert not any("A/B question" in note for note in exported.notes), "it answers its own letters"


@pytest.mark.parametrize("mode", ["first_token", "sequence"])
async def test_labels(engines, mode):
    labels = ["NO-RESPONSE", "A", "B", "Ada Berg", "Ole"]
    exported, nano = [await engine.label_probs(PROMPTS, labels, mode=mode) for engine in engines]
    np.testing.assert_allclose(exported.p, nano.p, rtol=1e-3, atol=1e-7)
    assert exported.usage.prompt_tokens == nano.usage.prompt_tokens
