"""`/classify` of a real vLLM beside transformers, on the same tiny classifier."""

from __future__ import annotations

import numpy as np
import pytest
from support.environments import VLLM
from support.tiny_classifier import SHUFFLED, make_classifier
from support.vllm_server import serve

from ragguard.engines.entailment import Pair
from ragguard.engines.nli_models import ClassifyEntailer, CrossEncoder
from ragguard.errors import EngineRejected, PromptTooLong

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(900)]
QUESTION = "Who founded the firm in Oslo ?"
PAIRS = [
    Pair(QUESTION, "Ada Berg", "Ole Dahl"),
    Pair(QUESTION, "Ole Dahl", "Ada Berg"),
    Pair(QUESTION, "Ada Berg runs the firm", "Ada"),
    Pair("Where ?", "Paris </s></s> Lyon", "München 東京"),
    Pair("Where ?", "Paris", "paris ."),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_classifier(tmp_path_factory.mktemp("nli"))


@pytest.fixture(scope="module")
def server(folder):
    if not VLLM.ready():
        pytest.skip("NO vLLM HERE: run `make test-vllm`")
    with serve(folder, "nli", "--runner", "pooling") as server:
        yield server


async def test_classifier_gives_the_numbers_of_transformers(server, folder):
    served = ClassifyEntailer(server.url, labels=SHUFFLED)
    here = CrossEncoder(folder, device="cpu")
    ours, theirs = await served.entail(PAIRS), await here.entail(PAIRS)
    np.testing.assert_allclose(ours.p[[0, 1, 2, 4]], theirs.p[[0, 1, 2, 4]], atol=1e-3)
    assert np.abs(ours.p[0] - ours.p[1]).max() > 1e-3, "the direction matters"
    assert ours.p[4].tolist() == [1, 0, 0]
    assert (ours.usage.requests, ours.usage.prompts) == (1, 4)
    assert ours.usage.prompt_tokens == pytest.approx(theirs.usage.prompt_tokens, abs=6)
    assert (await served.info()).model == "nli"
    await served.aclose()
    await here.aclose()


async def test_without_labels_it_says_what_it_could_not_see(server):
    served = ClassifyEntailer(server.url)
    with pytest.raises(EngineRejected, match="labels="):
        await served.entail(PAIRS[:1])
    await served.aclose()


@pytest.mark.parametrize(
    "pair", [Pair(QUESTION, "Ada " * 300, "Ole Dahl"), Pair("Who ? " * 300, "Ada", "Ole")]
)
async def test_pair_for_which_the_server_has_no_room_is_refused(server, pair):
    served = ClassifyEntailer(server.url, labels=SHUFFLED)
    with pytest.raises(PromptTooLong):
        await served.entail([PAIRS[0], pair])
    await served.aclose()


async def test_many_pairs(server):
    served = ClassifyEntailer(server.url, labels=SHUFFLED)
    answer = await served.entail([Pair(QUESTION, f"Ada {i}", "Ole") for i in range(600)])
    np.testing.assert_allclose(answer.p.sum(axis=1), 1)
    assert answer.usage.requests == 3
    await served.aclose()
