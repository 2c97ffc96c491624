"""nano as a Hugging Face checkpoint, so that transformers and vLLM serve the very same model.

Needs NumPy alone.
"""

from __future__ import annotations

import json
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.nano.tokenizer import ANSWER, BEGIN, END, SPECIAL, UNKNOWN, load_tokenizer

# The same words as the tokenizer's PATTERN, in the syntax of the tokenizers library.
_PATTERN = r"NO-RESPONSE|'s(?![A-Za-z0-9])|[A-Za-z0-9\x{80}-\x{10FFFF}]+|[!-/:-@\[-`{-~]"
# A space is put after each "<" in a message, so that no message can spell a special token.
_CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}"
    "{{ '<answer>' + (message['content'] | replace('<', '< ')) + '<eos>' }}"
    "{% else %}{{ (message['content'] | replace('<', '< ')) + '\\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<answer>' }}{% endif %}"
)
_MATRICES = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "input_norm": "input_layernorm",
    "post_norm": "post_attention_layernorm",
}


def write_checkpoint(directory: Path) -> list[Path]:
    """Writes config, weights, tokenizer and chat template into a directory (made if it is missing)."""
    directory.mkdir(parents=True, exist_ok=True)
    with as_file(files(__package__) / "weights.npz") as path, np.load(path) as arrays:
        config = json.loads(bytes(arrays["config"]).decode())
        tensors = {"model.embed_tokens.weight": arrays["embed"], "model.norm.weight": arrays["norm"]}
        for name, llama in _MATRICES.items():
            for i, layer in enumerate(arrays[name]):
                tensors[f"model.layers.{i}.{llama}.weight"] = layer
    words = load_tokenizer()
    ids = {"bos_token_id": words.begin, "eos_token_id": words.end, "pad_token_id": words.end}
    architecture = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "num_key_value_heads": config["num_attention_heads"],
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "initializer_range": 0.02,
        "use_cache": True,
    }
    special = {"bos_token": BEGIN, "eos_token": END, "unk_token": UNKNOWN, "pad_token": END}
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special,
        "additional_special_tokens": [ANSWER],
        "model_max_length": config["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
        "chat_template": _CHAT_TEMPLATE,
    }
    documents = {
        "config.json": {**architecture, **config, **ids},
        "generation_config.json": {**ids, "do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0},
        "tokenizer.json": _tokenizer(words.words),
        "tokenizer_config.json": tokenizer_config,
        "special_tokens_map.json": special,
    }
    for name, document in documents.items():
        (directory / name).write_text(
            json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
        )
    (directory / "chat_template.jinja").write_text(_CHAT_TEMPLATE, encoding="utf-8")
    _write_safetensors(directory / "model.safetensors", tensors)
    return sorted(path for path in directory.iterdir() if path.is_file())


def _tokenizer(words: list[str]) -> dict[str, object]:
    added = [
        {
            "id": i,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i, token in enumerate(words)
        if token in SPECIAL
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": _PATTERN},
            "behavior": "Removed",
            "invert": True,
        },
        "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordLevel",
            "vocab": {word: i for i, word in enumerate(words)},
            "unk_token": UNKNOWN,
        },
    }


def _write_safetensors(path: Path, tensors: dict[str, NDArray[np.generic]]) -> None:
    """Writes the safetensors format: a length, a JSON header and the raw numbers."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    blobs, at = [], 0
    for name, tensor in sorted(tensors.items()):
        blob = np.ascontiguousarray(tensor, dtype="<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))
