"""Cross-encoders in ONNX form, made on the spot: the numbers of a pair are the sum of those of its tokens, each by its
word and by the text that it stands in."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WORDS = "[PAD] [CLS] [SEP] [UNK] who founded the mills ursula ole oslo sells clocks in may red not".split()
CONTEXT = 24


def tables(classes: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The numbers of each word, and of each text of a pair."""
    numbers = np.random.default_rng(classes)
    words = numbers.normal(size=(len(WORDS), classes)).astype(np.float32)
    words[0] = 50.0  # the padding, which the mask takes out
    return words, numbers.normal(size=(2, classes)).astype(np.float32)


def make_onnx(
    folder: Path, labels: tuple[str, ...] = ("score",), inputs: tuple[str, ...] = (), *, nested: bool = False
) -> Path:
    """Writes model, tokenizer and config; `inputs` in place of the usual ones."""
    from onnx import TensorProto, helper, numpy_helper, save
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    names = inputs or ("input_ids", "attention_mask", "token_type_ids")
    words, texts = tables(len(labels))
    nodes = [
        helper.make_node("Gather", ["words", names[0]], ["by_word"]),
        helper.make_node("Gather", ["texts", names[2]], ["by_text"]),
        helper.make_node("Add", ["by_word", "by_text"], ["all"]),
        helper.make_node("Cast", [names[1]], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["kept"]),
        helper.make_node("Mul", ["all", "kept"], ["shown"]),
        helper.make_node("ReduceSum", ["shown", "middle"], ["logits"], keepdims=0),
    ]
    given = [helper.make_tensor_value_info(name, TensorProto.INT64, ["rows", "columns"]) for name in names]
    out = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", len(labels)])]
    constants = {"words": words, "texts": texts, "last": np.array([-1]), "middle": np.array([1])}
    graph = helper.make_graph(
        nodes, "tiny", given, out, [numpy_helper.from_array(array, name) for name, array in constants.items()]
    )
    place = folder / "onnx" if nested else folder
    place.mkdir(parents=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    save(model, str(place / "model.onnx"))
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    tokenizer.add_special_tokens(["[PAD]", "[CLS]", "[SEP]", "[UNK]"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"id2label": dict(enumerate(labels)), "max_position_embeddings": CONTEXT + 2, "pad_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def numbers_of(one: str, other: str, classes: int) -> NDArray[np.float64]:
    """The numbers of a pair of texts of known words."""
    words, texts = tables(classes)
    first, second = ["[CLS]", *one.split(), "[SEP]"], [*other.split(), "[SEP]"]
    total = np.zeros(classes)
    for text, tokens in enumerate((first, second)):
        for token in tokens:
            total += words[WORDS.index(token)] + texts[text]
    return total
