"""One random Llama as a Hugging Face checkpoint and as a GGUF file, with a byte-level tokenizer trained on the spot.

Its heads share keys, so that engines can be compared on what real models have. It understands nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from support.tiny_checkpoint import WORDS

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_gguf(
    directory: Path, *, context: int = 1024, architecture: str = "llama", template: str = TEMPLATE
) -> tuple[Path, Path]:
    """Writes the model to `directory`; returns the checkpoint's folder and the GGUF file."""
    import torch
    from gguf import TokenType
    from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers.models import BPE
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(WORDS)] * 3, trainer)
    checkpoint = directory / "checkpoint"
    special = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"}
    _write_tokenizer(checkpoint, tokenizer, context, chat_template=TEMPLATE, **special)
    (checkpoint / "chat_template.jinja").write_text(TEMPLATE)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=128, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=context, initializer_range=0.15,
        tie_word_embeddings=True, rope_theta=100_000.0, bos_token_id=1, eos_token_id=2, pad_token_id=2,
        torch_dtype="float32",
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.save_pretrained(checkpoint)
    data = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(data["vocab"], key=data["vocab"].get)
    facts = {
        "name": "tiny", "context_length": context, "embedding_length": 128, "block_count": 2,
        "feed_forward_length": 256, "head_count": 4, "head_count_kv": 2, "rope_dimension_count": 32,
        "rope_freq_base": 100_000.0, "layer_norm_rms_eps": float(config.rms_norm_eps), "tokenizer_model": "gpt2",
        "tokenizer_pre": "smollm", "token_list": tokens,
        "token_types": [TokenType.CONTROL if token in SPECIAL else TokenType.NORMAL for token in tokens],
        "token_merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in data["merges"]],
        "bos_token_id": 1, "eos_token_id": 2, "chat_template": template,
    }  # fmt: skip
    heads = {"attn_q": 4, "attn_k": 2}

    def as_stored(name: str, matrix: np.ndarray) -> np.ndarray:
        return _paired(matrix, heads[name]) if name in heads else matrix

    path = directory / "tiny.gguf"
    _write_gguf(
        path, architecture, facts, model, _TENSORS | {"post_attention_layernorm": "ffn_norm"}, as_stored
    )
    return checkpoint, path


_TENSORS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
}  # fmt: skip
"""The names of a layer's tensors in a checkpoint, and in a GGUF file."""


def _write_gguf(
    path: Path,
    architecture: str,
    facts: Mapping[str, Any],
    model: Any,
    tensors: Mapping[str, str],
    as_stored: Callable[[str, np.ndarray], np.ndarray],
) -> None:
    """Writes a model's facts and weights, each tensor as the file has it."""
    from gguf import GGUFWriter

    writer = GGUFWriter(path, architecture)
    for fact, value in facts.items():
        getattr(writer, f"add_{fact}")(value)
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    writer.add_tensor("token_embd.weight", weights["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", as_stored("output_norm", weights["model.norm.weight"]))
    for layer in range(facts["block_count"]):
        for theirs, ours in tensors.items():
            matrix = as_stored(ours, weights[f"model.layers.{layer}.{theirs}.weight"])
            writer.add_tensor(f"blk.{layer}.{ours}.weight", matrix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_tokenizer(checkpoint: Path, tokenizer: Any, context: int, **special: str) -> None:
    """Writes a tokenizer, as transformers reads it."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(checkpoint / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": context}
    settings |= {"clean_up_tokenization_spaces": False, **special}
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(settings))


def _paired(matrix: np.ndarray, heads: int) -> np.ndarray:
    """The rotated pairs of each head side by side, as GGUF has them."""
    rows, width = matrix.shape
    paired = matrix.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(rows, width)
    return np.ascontiguousarray(paired)


def make_gemma(directory: Path, *, context: int = 256) -> tuple[Path, Path]:
    """Writes a random Gemma 3 without a chat template, whose first layers look back 16 tokens and whose last one is
    global; returns the checkpoint's folder and the GGUF file."""
    import torch
    from gguf import TokenType
    from tokenizers import AddedToken, Tokenizer, decoders, normalizers, processors, trainers
    from tokenizers.models import BPE
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    tokenizer = Tokenizer(BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=520, special_tokens=[*special, *bytes_], show_progress=False)
    tokenizer.train_from_iterator(["\n".join([" ".join(WORDS)] * 3)], trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] in special]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", special.index("<bos>"))]
    )
    checkpoint = directory / "gemma"
    names = ("pad_token", "eos_token", "bos_token", "unk_token")
    _write_tokenizer(checkpoint, tokenizer, context, **dict(zip(names, special, strict=True)))
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=64, intermediate_size=128, num_hidden_layers=6, head_dim=32,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=context, initializer_range=0.1,
        query_pre_attn_scalar=32, sliding_window=16, rope_theta=1_000_000.0, rope_local_base_freq=10_000.0,
        bos_token_id=2, eos_token_id=1, pad_token_id=0, torch_dtype="float32",
    )  # fmt: skip
    model = Gemma3ForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight += 0.2 * torch.randn_like(weight)
    model.save_pretrained(checkpoint)

    vocabulary = tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.get)
    # A vocabulary of SentencePiece ranks by scores what one of BPE ranks by its merges.
    merged = ["".join(merge) for merge in data["model"]["merges"]]
    ranks = {token: -float(rank) for rank, token in reversed(list(enumerate(merged)))}
    kinds = dict.fromkeys(special, TokenType.CONTROL) | dict.fromkeys(bytes_, TokenType.BYTE)
    facts = {
        "name": "tiny gemma", "context_length": context, "embedding_length": 64, "block_count": 6,
        "feed_forward_length": 128, "head_count": 4, "head_count_kv": 2, "key_length": 32, "value_length": 32,
        "sliding_window": 16, "rope_freq_base": 1_000_000.0, "layer_norm_rms_eps": float(config.rms_norm_eps),
        "tokenizer_model": "llama", "token_list": tokens,
        "token_scores": [ranks.get(token, -1000.0) for token in tokens],
        "token_types": [kinds.get(token, TokenType.NORMAL) for token in tokens], "bos_token_id": 2,
        "eos_token_id": 1, "unk_token_id": 3, "add_space_prefix": False,
    }  # fmt: skip
    tensors = _TENSORS | {
        "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
        "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    }  # fmt: skip

    def as_stored(name: str, matrix: np.ndarray) -> np.ndarray:
        """The files hold the scale of a norm; the checkpoint holds it less one."""
        return 1 + matrix if "norm" in name else matrix

    path = directory / "gemma.gguf"
    _write_gguf(path, "gemma3", facts, model, tensors, as_stored)
    return checkpoint, path
