"""Reads a model of the Llama architecture from a GGUF file: its size, its weights and its tokenizer's data.

The `gguf` library reads and dequantises; it is imported when a file is read. A file of another architecture, a
file that is cut short, or no GGUF at all is refused with the reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ragguard.engines.llama.network import Config, Floats, LayerWeights, Network
from ragguard.errors import EngineRejected, InvalidInput, MissingDependency

_ENDS = 2**20
"""The bytes at each end of the file that are read for its digest."""
_MATRICES = {
    "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output", "gate": "ffn_gate", "up": "ffn_up",
    "down": "ffn_down", "input_norm": "attn_norm", "post_norm": "ffn_norm",
}  # fmt: skip
NEEDED = ("gguf", "tokenizers", "jinja2")
"""The packages of the extra `smol`."""


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A GGUF file whose header was read and checked; the weights are read when the network is made."""

    path: Path
    reader: Any
    values: Mapping[str, Any]
    """The metadata, without the tokenizer's long lists."""

    @property
    def name(self) -> str:
        return str(self.values.get("general.name") or self.path.stem)

    def lists(self, key: str) -> list[Any]:
        """Returns a list of the metadata, such as the tokens; empty where the file has none."""
        field = self.reader.fields.get(key)
        return [] if field is None else list(field.contents())

    def identity(self) -> str:
        """Returns a digest of the file's size and of both of its ends."""
        size = self.path.stat().st_size
        digest = hashlib.sha256(f"{size}".encode())
        with self.path.open("rb") as opened:
            digest.update(opened.read(_ENDS))
            opened.seek(max(0, size - _ENDS))
            digest.update(opened.read(_ENDS))
        return digest.hexdigest()[:16]

    def config(self) -> Config:
        """Returns the size of the network."""
        heads = self._number("attention.head_count")
        width = self._number("embedding_length")
        return Config(
            vocab_size=int(self._tensor("token_embd.weight").shape[1]),
            hidden_size=width,
            num_hidden_layers=self._number("block_count"),
            num_attention_heads=heads,
            num_key_value_heads=self._number("attention.head_count_kv", heads),
            head_dim=self._number("rope.dimension_count", width // heads),
            intermediate_size=self._number("feed_forward_length"),
            rope_theta=float(self.values.get("llama.rope.freq_base", 10_000.0)),
            rms_norm_eps=float(self.values.get("llama.attention.layer_norm_rms_epsilon", 1e-5)),
            max_position_embeddings=self._number("context_length"),
        )

    def network(self) -> Network:
        """Reads and dequantises all weights, one layer at a time."""
        config = self.config()
        output = self._read("output.weight") if "output.weight" in self._names() else None
        embed, norm = self._read("token_embd.weight"), self._read("output_norm.weight")
        return Network(config, embed, norm, self._layers(config), output)

    def _layers(self, config: Config) -> Iterator[LayerWeights]:
        for i in range(config.num_hidden_layers):
            weights = {field: self._read(f"blk.{i}.{name}.weight") for field, name in _MATRICES.items()}
            weights["q"] = _in_halves(weights["q"], config.num_attention_heads)
            weights["k"] = _in_halves(weights["k"], config.num_key_value_heads)
            yield LayerWeights(**weights)

    def _names(self) -> set[str]:
        return {tensor.name for tensor in self.reader.tensors}

    def _tensor(self, name: str) -> Any:
        for tensor in self.reader.tensors:
            if tensor.name == name:
                return tensor
        raise EngineRejected(
            f"{self.path} holds no tensor {name}: it is no complete Llama model; get the file again"
        )

    def _read(self, name: str) -> Floats:
        from gguf import dequantize

        tensor = self._tensor(name)
        try:
            return np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        except NotImplementedError as error:
            raise EngineRejected(
                f"{self.path} holds {name} as {tensor.tensor_type.name}, which the gguf library cannot read: "
                "get the model in another quantisation, such as Q8_0 or Q4_1"
            ) from error

    def _number(self, key: str, default: int | None = None) -> int:
        value = self.values.get(f"llama.{key}", default)
        if value is None:
            raise EngineRejected(f"{self.path} does not say llama.{key}: get the file again")
        return int(value)


def open_gguf(path: str | Path) -> GgufFile:
    """Reads and checks the header of a GGUF file; raises InvalidInput or EngineRejected with the way out."""
    for package in NEEDED:
        if find_spec(package) is None:
            raise MissingDependency(package, "models from GGUF files", "smol")
    file = Path(path).expanduser()
    if not file.is_file():
        raise InvalidInput("engine", f"gguf:{path}", "gguf: and the path of a GGUF file that exists")
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
        values = {
            key: field.contents()
            for key, field in reader.fields.items()
            if not key.startswith("tokenizer.") or len(field.data) <= 1
        }
    except (
        Exception
    ) as error:  # the library raises ValueError, IndexError, KeyError and others for what is no GGUF
        raise EngineRejected(f"{file} is no GGUF file, or is cut short ({error}): get it again") from error
    if (kind := values.get("general.architecture")) != "llama":
        raise EngineRejected(
            f"{file} holds a model of the architecture {kind}; only the Llama architecture is computed here: serve "
            "the model with llama.cpp or Ollama and give the server's address"
        )
    if values.get("llama.rope.scaling.type", "none") not in ("none", ""):
        raise EngineRejected(
            f"{file} scales its rotary positions, which is not computed here: serve the model with llama.cpp"
        )
    return GgufFile(file, reader, values)


def _in_halves(matrix: Floats, heads: int) -> Floats:
    """Returns a query or key matrix with each head's rotated pairs as two halves; GGUF has them side by side."""
    rows, width = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)
