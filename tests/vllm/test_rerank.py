"""`/rerank` of a real vLLM beside transformers, on the same tiny cross-encoder of random weights."""

from __future__ import annotations

import numpy as np
import pytest
from support.environments import VLLM
from support.scripted_engine import ScriptedEngine
from support.tiny_classifier import make_classifier
from support.vllm_server import serve
from typer.testing import CliRunner

from ragguard import DistractorGuard
from ragguard.cli.app import app
from ragguard.engines.connect import connect
from ragguard.engines.prompts import load_prompts
from ragguard.errors import PromptTooLong
from ragguard.scorers.probes import relevance

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(900)]
QUERY = "Who founded the firm in Oslo ?"
PASSAGES = [
    f"{name} {verb} the firm"
    for name in ("Ada", "Ole", "Berg", "Dahl", "Norway")
    for verb in ("founded", "runs")
]
PROMPTS = load_prompts("rerank")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_classifier(tmp_path_factory.mktemp("reranker"), labels=("score",))


@pytest.fixture(scope="module")
def server(folder):
    if not VLLM.ready():
        pytest.skip("NO vLLM HERE: run `make test-vllm`")
    with serve(folder, "reranker", "--runner", "pooling") as server:
        yield server


async def asked(server, passages):
    engine = connect(f"rerank:{server.url}#reranker")
    try:
        return await engine.label_probs(
            [relevance(PROMPTS, QUERY, text).prompt for text in passages], ["yes", "no"]
        )
    finally:
        await engine.aclose()


async def test_ten_passages_are_one_request_and_get_the_scores_of_transformers(server, folder):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    found = await asked(server, PASSAGES)
    pairs = AutoTokenizer.from_pretrained(folder)([QUERY] * 10, PASSAGES, padding=True, return_tensors="pt")
    with torch.no_grad():
        scores = torch.sigmoid(AutoModelForSequenceClassification.from_pretrained(folder)(**pairs).logits)[
            :, 0
        ]
    np.testing.assert_allclose(np.log(found.p[:, 0] / found.p[:, 1]), scores, atol=1e-3)
    assert np.ptp(scores.numpy()) > 0.01, "the passages differ"
    assert (found.usage.requests, found.usage.prompts) == (1, 10)
    assert found.usage.prompt_tokens > 100


async def test_a_passage_for_which_the_server_has_no_room_is_an_error_and_a_guard_keeps_all(server):
    long = [*PASSAGES, "Ada " * 300]
    with pytest.raises(PromptTooLong, match="130 tokens"):
        await asked(server, long)
    reader = ScriptedEngine(label=lambda text, label: 0.3)
    judge = connect(f"rerank:{server.url}#reranker")
    decision = await DistractorGuard(reader, judge=judge, budget_ms=60_000).aprune(QUERY, long)
    await judge.aclose()
    assert (len(decision.kept), decision.status) == (11, "error")


def test_doctor_finds_a_reranker(server):
    looked = CliRunner().invoke(app, ["doctor", f"rerank:{server.url}"])
    assert looked.exit_code == 0, looked.output
    assert looked.stdout.splitlines()[-1].startswith("ready as a judge of relevance")
