"""A Hugging Face checkpoint made on the spot: a random Llama of some 300,000 parameters and a hundred words.

It understands nothing; its probabilities are as real as any model's, so engines can be compared on it.
"""

from __future__ import annotations

import json
from pathlib import Path

SPECIAL = ("<unk>", "<bos>", "<eos>", "<turn>")
WORDS = (
    *"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,?!:;-<>/'\"()",
    *"system user assistant NO No RESPONSE Norway None Reply with the letter document question answer".split(),
    *"Who What Where founded runs firm based in Oslo Lyon Ada Berg Ole Dahl is a of to yes no alone".split(),
    *"from it does not Paris 1922 sells maps München 東京 naïve".split(),
)
TEMPLATE = (
    "<bos>{% for m in messages %}<turn>{{ m['role'] }} : {{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<turn>assistant :{% endif %}"
)


def make_checkpoint(
    directory: Path, *, template: str = TEMPLATE, context: int = 1024, qwen: bool = False
) -> Path:
    """Writes config, weights and tokenizer to `directory`; with `qwen` in the architecture of Qwen3."""
    import torch
    from tokenizers import Regex, Tokenizer, pre_tokenizers
    from tokenizers.models import WordLevel
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    words = dict.fromkeys((*SPECIAL, *WORDS))
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(r"\w+|[^\w\s]"), "isolated")]
    )
    tokenizer.add_special_tokens(list(SPECIAL))
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": context, "chat_template": template,
        "unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<eos>",
        "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    (directory / "chat_template.jinja").write_text(template)

    torch.manual_seed(0)
    config = (Qwen3Config if qwen else LlamaConfig)(
        vocab_size=len(words), hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=context, initializer_range=0.15, tie_word_embeddings=True,
        unk_token_id=0, bos_token_id=1, eos_token_id=2, pad_token_id=2, torch_dtype="float32",
    )  # fmt: skip
    if qwen:
        config.head_dim = 64
    (Qwen3ForCausalLM if qwen else LlamaForCausalLM)(config).save_pretrained(directory)
    return directory
