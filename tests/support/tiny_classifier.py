"""An NLI classifier made on the spot: random weights, a word vocabulary, classes in an unusual order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from support.tiny_checkpoint import WORDS

Family = Literal["roberta", "deberta-v2"]
SHUFFLED = ("neutral", "contradiction", "entailment")
_FRAMES = {"roberta": ("<s>", "</s>", "</s></s>"), "deberta-v2": ("[CLS]", "[SEP]", "[SEP]")}


def make_classifier(
    directory: Path, *, family: Family = "roberta", labels: tuple[str, ...] = SHUFFLED, spread: float = 0.6
) -> Path:
    """Writes config, weights and tokenizer to `directory`; `spread` makes its verdicts differ between pairs."""
    import torch
    import transformers
    from tokenizers import Regex, Tokenizer, pre_tokenizers, processors
    from tokenizers.models import WordLevel

    begin, end, _ = _FRAMES[family]
    # RoBERTa counts its positions from the number of the padding token.
    words = [begin, "<pad>", end, "<unk>", *WORDS]
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys(words))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(r"\w+|[^\w\s]"), "isolated")]
    )
    middle = f"{end} {end}" if family == "roberta" else end
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {middle} $B {end}",
        special_tokens=[(begin, vocabulary[begin]), (end, vocabulary[end])],
    )
    tokenizer.add_special_tokens([begin, end, "<pad>", "<unk>"])
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 128, "cls_token": begin, "sep_token": end,
        "bos_token": begin, "eos_token": end, "pad_token": "<pad>", "unk_token": "<unk>",
        "model_input_names": ["input_ids", "attention_mask"],
    }  # fmt: skip
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))

    torch.manual_seed(0)
    named = dict(enumerate(labels))
    common = {
        "vocab_size": len(vocabulary), "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 128, "max_position_embeddings": 130, "type_vocab_size": 1 if family == "roberta" else 0,
        "id2label": named, "label2id": {label: i for i, label in named.items()}, "initializer_range": spread,
        "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
    }  # fmt: skip
    if family == "roberta":
        model = transformers.RobertaForSequenceClassification(transformers.RobertaConfig(**common))
    else:
        config = transformers.DebertaV2Config(
            **common, relative_attention=True, position_buckets=16, pos_att_type=["p2c", "c2p"]
        )
        model = transformers.DebertaV2ForSequenceClassification(config)
    model.save_pretrained(directory)
    return directory
