"""The cross-encoder on tiny random checkpoints whose classes stand in an unusual order."""

from __future__ import annotations

import numpy as np
import pytest
from support.tiny_classifier import make_classifier

from ragguard.engines import nli_models
from ragguard.engines.entailer import Entailer
from ragguard.engines.entailment import Pair
from ragguard.engines.nli_models import CrossEncoder
from ragguard.errors import InvalidInput, PromptTooLong

torch = pytest.importorskip("torch", reason="the extra hf is not installed")
transformers = pytest.importorskip("transformers", reason="the extra hf is not installed")

QUESTION = "Who founded the firm ?"
PAIRS = [
    Pair(QUESTION, "Ada Berg", "Ole Dahl"),
    Pair(QUESTION, "Ole Dahl", "Ada Berg"),
    Pair(QUESTION, "Ada", "Ada Berg runs the firm in Oslo and sells maps"),
    Pair("Where ?", "Paris", "Lyon"),
]


@pytest.fixture(scope="module", params=["roberta", "deberta-v2"])
def checkpoint(request, tmp_path_factory):
    return make_classifier(tmp_path_factory.mktemp("nli"), family=request.param)


@pytest.fixture
async def entailer(checkpoint):
    entailer = CrossEncoder(checkpoint, device="cpu")
    yield entailer
    await entailer.aclose()


def plainly(checkpoint, pairs):
    """By transformers itself, one pair at a time, in the classes' own order."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(checkpoint).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    rows = []
    for pair in pairs:
        texts = [f"{pair.question} {answer}" for answer in (pair.premise, pair.hypothesis)]
        with torch.inference_mode():
            rows.append(model(**tokenizer(*texts, return_tensors="pt")).logits[0].softmax(-1).numpy())
    return np.array(rows)


async def test_columns_are_relations_not_the_classes_order(entailer, checkpoint):
    assert isinstance(entailer, Entailer)
    answer = await entailer.entail(PAIRS)
    neutral, contradiction, entailment = plainly(checkpoint, PAIRS).T
    np.testing.assert_allclose(answer.p, np.stack([entailment, neutral, contradiction], -1), atol=1e-5)
    assert np.abs(answer.p[0] - answer.p[1]).max() > 1e-4, "the direction matters"
    np.testing.assert_allclose(answer.p.sum(axis=1), 1)
    assert answer.usage.prompts == 4
    assert answer.usage.prompt_tokens > 40


async def test_company_and_batches_change_nothing(entailer, monkeypatch):
    many = [Pair(QUESTION, "Ada " * (i % 9 + 1), "Ole") for i in range(40)] + PAIRS
    one = await entailer.entail(many)
    monkeypatch.setattr(nli_models, "_BATCH_TOKENS", 40)
    np.testing.assert_allclose(one.p, (await entailer.entail(many)).p, atol=1e-5)
    np.testing.assert_allclose(one.p[-4:], (await entailer.entail(PAIRS)).p, atol=1e-5)


async def test_special_tokens_in_an_answer_are_text(entailer, checkpoint):
    for token in ("</s>", "[SEP]"):
        odd = await entailer.entail([Pair(QUESTION, f"Ada {token} Ole", "Ole")])
        assert np.isfinite(odd.p).all()
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    end = tokenizer.sep_token
    plain = await entailer.entail([Pair(QUESTION, f"Ada {end}", "Ole")])
    forged = plainly(checkpoint, [Pair(QUESTION, f"Ada {end}", "Ole")])[:, [2, 0, 1]]
    assert np.abs(plain.p - forged).max() > 1e-6


async def test_pair_that_is_too_long_is_refused_and_nothing_is_cut(entailer):
    with pytest.raises(PromptTooLong, match="tokens with its question"):
        await entailer.entail([PAIRS[0], Pair(QUESTION, "Ada " * 200, "Ole Dahl")])


async def test_classes_without_names_are_refused_with_the_way_out(tmp_path):
    entailer = CrossEncoder(make_classifier(tmp_path, labels=("LABEL_0", "LABEL_1", "LABEL_2")), device="cpu")
    with pytest.raises(InvalidInput, match="write such names there"):
        await entailer.entail(PAIRS)
    await entailer.aclose()
