"""Cross-encoders in ONNX form: as entailer and as reranker, beside the same sums by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from support.tiny_onnx import CONTEXT, make_onnx, numbers_of

from ragguard.engines.connect import connect, connect_entailer, open_engine
from ragguard.engines.entailment import Pair
from ragguard.engines.prompts import load_prompts
from ragguard.errors import EngineRejected, InvalidInput, PromptTooLong
from ragguard.scorers.probes import relevance

pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
pytest.importorskip("onnx", reason="onnx, which makes the model, is not installed")

PROMPTS = load_prompts("rerank")
QUERY = "who founded the mills"
PASSAGES = ["ursula founded the mills in may", "red", "oslo sells clocks", "the mills"]
NLI = ("neutral", "contradiction", "entailment")


def prompts(passages: list[str], query: str = QUERY) -> list[object]:
    return [relevance(PROMPTS, query, passage).prompt for passage in passages]


@pytest.mark.parametrize("nested", [False, True])
async def test_scores_are_the_models_own_whatever_stands_beside_them(tmp_path, nested):
    judge = connect(f"onnx:{make_onnx(tmp_path / 'reranker', nested=nested)}")
    found = await judge.label_probs(prompts(PASSAGES), ["yes", "no"])
    logits = [math.log(p / q) for p, q in found.p]
    assert logits == pytest.approx([numbers_of(QUERY, text, 1)[0] for text in PASSAGES], abs=1e-4)
    alone = await judge.label_probs(prompts([PASSAGES[2]], "who sells clocks"), ["yes", "no"])
    assert math.log(alone.p[0, 0] / alone.p[0, 1]) == pytest.approx(
        numbers_of("who sells clocks", PASSAGES[2], 1)[0], abs=1e-4
    )
    info = await judge.info()
    assert (info.kind, info.prompts, info.context) == ("rerank", "rerank", CONTEXT)
    await judge.aclose()


async def test_a_long_passage_is_cut_and_said_to_be(tmp_path):
    judge = open_engine(f"onnx:{make_onnx(tmp_path / 'reranker')}")
    found = await judge.label_probs(prompts(["red " * 40, "red"]), ["yes", "no"])
    room = CONTEXT - 3 - len(QUERY.split())
    assert found.truncated == {0: 40 - room}
    assert math.log(found.p[0, 0] / found.p[0, 1]) == pytest.approx(
        numbers_of(QUERY, "red " * room, 1)[0], abs=1e-4
    )
    await judge.aclose()


async def test_relations_are_the_classes_by_their_names(tmp_path):
    entailer = connect_entailer(f"onnx:{make_onnx(tmp_path / 'nli', NLI)}")
    pairs = [Pair("who", "ursula", "ole"), Pair("who", "ole", "ursula"), Pair("who", "ole", "Ole!")]
    found = await entailer.entail(pairs)
    for row, pair in zip(found.p[:2], pairs, strict=False):
        logits = numbers_of(f"who {pair.premise}", f"who {pair.hypothesis}", 3)
        neutral, contradiction, entailment = np.exp(logits) / np.exp(logits).sum()
        assert row == pytest.approx([entailment, neutral, contradiction], abs=1e-5)
    assert found.p[2].tolist() == [1, 0, 0]
    assert (found.usage.requests, found.usage.prompts) == (1, 2)
    with pytest.raises(PromptTooLong, match="tokens than"):
        await entailer.entail([Pair("who", "red " * 40, "ole")])
    await entailer.aclose()


async def test_special_tokens_in_an_answer_are_text(tmp_path):
    entailer = connect_entailer(f"onnx:{make_onnx(tmp_path / 'nli', NLI)}")
    (row,) = (await entailer.entail([Pair("who", "ole [SEP] red", "ole")])).p
    logits = numbers_of("who ole [UNK] [UNK] [UNK] red", "who ole", 3)  # a bracket, a word, a bracket
    neutral, contradiction, entailment = np.exp(logits) / np.exp(logits).sum()
    assert row == pytest.approx([entailment, neutral, contradiction], abs=1e-5)
    await entailer.aclose()


async def test_models_of_another_kind_are_one_error_each(tmp_path):
    with pytest.raises(InvalidInput, match=r"model\.onnx"):
        open_engine(f"onnx:{tmp_path}")
    nli = open_engine(f"onnx:{make_onnx(tmp_path / 'nli', NLI)}")
    with pytest.raises(EngineRejected, match="an NLI model is an `entailer=`"):
        await nli.label_probs(prompts(PASSAGES), ["yes", "no"])
    odd = make_onnx(tmp_path / "odd", inputs=("input_ids", "attention_mask", "pixels"))
    with pytest.raises(EngineRejected, match="pixels"):
        await open_engine(f"onnx:{odd}").info()
    config = tmp_path / "nli" / "config.json"
    config.write_text(json.dumps({"id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}}))
    with pytest.raises(InvalidInput, match="names that say entailment"):
        await connect_entailer(f"onnx:{tmp_path / 'nli'}").entail([Pair("who", "ursula", "ole")])
    for text in ("{", "[" * 100_000):
        config.write_text(text)
        with pytest.raises(EngineRejected, match=r"config\.json could not be read"):
            await open_engine(f"onnx:{tmp_path / 'nli'}").info()
    (tmp_path / "odd" / "model.onnx").write_bytes(b"no model")
    with pytest.raises(EngineRejected, match="could not be loaded"):
        await open_engine(f"onnx:{odd}").info()
