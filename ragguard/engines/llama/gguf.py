"""GGUF files: a model of the architecture of Llama or Gemma 3 from such a file, with its tokenizer, computed on NumPy.

The `gguf` library reads and dequantises, the `tokenizers` library makes tokens; both are imported when a file is
read. A file of another architecture, a vocabulary of SentencePiece as Llama 2 has it, a file that is cut short, or no
GGUF at all is refused with the reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ragguard.engines.llama.chat_template import ChatTemplate
from ragguard.engines.llama.network import Network
from ragguard.engines.llama.transformer import Config, Floats, LayerWeights, Transformer
from ragguard.engines.local.local_engine import Loaded, LocalEngine, Worker, described
from ragguard.engines.local.pretrained import HfTokens, ends_of
from ragguard.errors import EngineRejected, InvalidInput, MissingDependency, RagguardError
from ragguard.runtime.faults import describe

_MATRICES = {
    "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output", "gate": "ffn_gate", "up": "ffn_up",
    "down": "ffn_down", "input_norm": "attn_norm", "post_norm": "ffn_norm",
}  # fmt: skip
_NORMS = {
    "q_norm": "attn_q_norm", "k_norm": "attn_k_norm", "attention_norm": "post_attention_norm",
    "mlp_norm": "post_ffw_norm",
}  # fmt: skip
"""The further norms of a layer of Gemma 3."""
_ARCHITECTURES = ("llama", "gemma3")
_GEMMA_LOCAL_THETA, _GEMMA_GLOBAL_EVERY = 10_000.0, 6
"""The settings that GGUF files of Gemma 3 leave out, since all of its sizes have them: the base of positions in local
layers, and that each sixth layer is global."""

_MOST_POSITIONS = 2**18
"""The most positions of a model that are used: a table has numbers for each."""
_INSTEAD = (
    "give hf:FILE.gguf, so that transformers reads it, or serve it with llama.cpp and give the server's address; both "
    "keep likelihoods (Ollama does not)"
)
"""The ways to use another model with all its numbers."""


class GgufFile:
    """A GGUF file whose header was read and checked; the weights are read when the network is made."""

    def __init__(self, path: Path, reader: Any) -> None:
        self.path = path
        self._fields = reader.fields
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.architecture = str(self.value("general.architecture", ""))
        self.is_gemma = self.architecture == "gemma3"

    def value(self, key: str, default: Any = None) -> Any:
        """Returns a value of the metadata."""
        field = self._fields.get(key)
        return default if field is None else field.contents()

    def transformer(self) -> Transformer:
        """Reads and dequantises all weights, one layer at a time, and computes with them once; raises whatever is wrong
        with them."""
        embed = self._read("token_embd.weight")
        heads, width = self._number("attention.head_count"), self._number("embedding_length")
        more: dict[str, Any] = {}
        if self.is_gemma:
            more = {
                "embedding_scale": width**0.5, "gelu": True, "window": self._number("attention.sliding_window", 0),
                "local_rope_theta": _GEMMA_LOCAL_THETA, "global_every": _GEMMA_GLOBAL_EVERY,
            }  # fmt: skip
        head = self._number("rope.dimension_count", width // heads)
        config = Config(
            hidden_size=width,
            num_hidden_layers=self._number("block_count"),
            num_attention_heads=heads,
            num_key_value_heads=self._number("attention.head_count_kv", heads),
            head_dim=self._number("attention.key_length", head) if self.is_gemma else head,
            intermediate_size=self._number("feed_forward_length"),
            rope_theta=float(self.value(f"{self.architecture}.rope.freq_base", 10_000.0)),
            rms_norm_eps=float(self.value(f"{self.architecture}.attention.layer_norm_rms_epsilon", 1e-5)),
            max_position_embeddings=min(self._number("context_length"), _MOST_POSITIONS),
            **more,
        )
        output = self._read("output.weight") if "output.weight" in self._tensors else None
        made = Transformer(config, embed, self._read("output_norm.weight"), self._layers(config), output)
        _, memory = made.run([(0,)], None)
        made.logprobs(made.run([(0,)], memory)[0])  # shapes that do not fit each other are found now
        return made

    def _layers(self, config: Config) -> Iterator[LayerWeights]:
        for i in range(config.num_hidden_layers):
            names = _MATRICES | _NORMS if self.is_gemma else _MATRICES
            weights = {field: self._read(f"blk.{i}.{name}.weight") for field, name in names.items()}
            if not self.is_gemma:
                weights["q"] = _in_halves(weights["q"], config.num_attention_heads)
                weights["k"] = _in_halves(weights["k"], config.num_key_value_heads)
            yield LayerWeights(**weights)

    def _read(self, name: str) -> Floats:
        from gguf import dequantize

        tensor = self._tensors[name]
        return np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)

    def _number(self, key: str, default: int | None = None) -> int:
        return int(self.value(f"{self.architecture}.{key}", default))


def open_gguf(path: str | Path) -> GgufFile:
    """Reads and checks the header of a GGUF file; raises InvalidInput or EngineRejected with the way out."""
    for package in ("gguf", "tokenizers", "jinja2"):
        if find_spec(package) is None:
            raise MissingDependency(package, "models from GGUF files", "smol")
    file = Path(path).expanduser()
    if not file.is_file():
        raise InvalidInput("engine", f"gguf:{path}", "gguf: and the path of a GGUF file that exists")
    try:
        found = GgufFile(file, _reader(file))
        kind, scaling = found.architecture, found.value(f"{found.architecture}.rope.scaling.type")
    except Exception as error:  # the library raises ValueError, IndexError, KeyError and others
        raise EngineRejected(f"{file} is no GGUF file, or is cut short ({error}): get it again") from error
    if kind not in _ARCHITECTURES or scaling not in (None, "none", ""):
        other = (
            f"a model of the architecture {kind}" if kind not in _ARCHITECTURES else "scaled rotary positions"
        )
        raise EngineRejected(
            f"{file} holds {other}; only plain Llama and small Gemma 3 models are computed here: {_INSTEAD}"
        )
    return found


def _reader(file: Path) -> Any:
    """Returns the library's reader of a file. It slices the file once for each token, which a plain array does in a
    third of the time of a `memmap`."""
    from gguf import GGUFReader

    class PlainReader(GGUFReader):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value.view(np.ndarray) if name == "data" else value)

    return PlainReader(file)


def _in_halves(matrix: Floats, heads: int) -> Floats:
    """Returns a query or key matrix with each head's rotated pairs as two halves; GGUF has them side by side."""
    rows, width = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)


_CONTROL, _USER_DEFINED = 3, 4
"""Kinds of tokens in GGUF that stand for themselves in a text; the text of an answer has none of the former."""
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
_SPLITS = ("smollm", "gpt-2", "default", "llama-bpe")
_SPACE = "▁"
"""How vocabularies of SentencePiece write a space."""


class GgufTokenizer:
    """A tokenizer made of a GGUF file."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self._tokens: list[str] = file.value("tokenizer.ggml.tokens", [])
        kinds = file.value("tokenizer.ggml.token_type", [])
        added = {i: kind == _CONTROL for i, kind in enumerate(kinds) if kind in (_CONTROL, _USER_DEFINED)}
        self.added_tokens_decoder = {i: self._tokens[i] for i in added}
        """The tokens that stand for themselves in a text, by their ids."""
        self._tokenizer = _made(
            file, self._tokens, {self._tokens[i]: special for i, special in added.items()}
        )
        self.chat_template = file.value("tokenizer.chat_template") or None
        self._template = ChatTemplate(str(self.chat_template))

    @property
    def ends(self) -> frozenset[int]:
        """The tokens that end an answer."""
        return frozenset(token for name in ("eos", "eot") if (token := self._id(name)) is not None)

    def __call__(self, texts: Sequence[str], add_special_tokens: bool = False) -> Mapping[str, Any]:
        """Returns the ids of each text under `input_ids`."""
        begin = self._id("bos")
        first = [begin] if add_special_tokens and begin is not None else []
        found = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return {"input_ids": [first + one.ids for one in found]}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Returns the text of ids."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens))

    def apply_chat_template(
        self, turns: Sequence[Mapping[str, str]], tokenize: bool, add_generation_prompt: bool, **settings: Any
    ) -> str:
        """Returns the conversation as the text that the model was trained on."""
        return self._template.render(
            messages=turns,
            add_generation_prompt=add_generation_prompt,
            bos_token=self._named("bos"),
            eos_token=self._named("eos"),
            **settings,
        )

    def _id(self, name: str) -> int | None:
        """Returns the id of the token with a role, such as `bos`."""
        token = self._file.value(f"tokenizer.ggml.{name}_token_id")
        return None if token is None else int(token)

    def _named(self, name: str) -> str:
        token = self._id(name)
        return "" if token is None else self._tokens[token]


def _made(file: GgufFile, tokens: list[str], added: Mapping[str, bool]) -> Any:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    kind, split = file.value("tokenizer.ggml.model"), file.value("tokenizer.ggml.pre", "default")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if file.is_gemma and kind == "llama" and not file.value("tokenizer.ggml.add_space_prefix", True):
        merges = _merges_of(tokens, file.value("tokenizer.ggml.scores", []), vocabulary)
        unknown = tokens[int(file.value("tokenizer.ggml.unknown_token_id", 0))]
        made = Tokenizer(
            models.BPE(vocab=vocabulary, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
        )
        made.normalizer = normalizers.Replace(" ", _SPACE)
        made.decoder = decoders.Sequence(
            [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        )
    elif kind == "gpt2" and split in _SPLITS:
        merges = [tuple(merge.split(" ", 1)) for merge in file.value("tokenizer.ggml.merges", [])]
        llama3 = split == "llama-bpe"
        made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=llama3))
        steps: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not llama3)]
        if split == "smollm":
            steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
        if llama3:
            steps.insert(0, pre_tokenizers.Split(Regex(_LLAMA3), behavior="isolated"))
        made.pre_tokenizer = pre_tokenizers.Sequence(steps)
        made.decoder = decoders.ByteLevel()
    else:
        raise EngineRejected(
            f"{file.path} has a tokenizer of the kind {kind} ({split}); known is gpt2 ({', '.join(_SPLITS)}), and that "
            f"of Gemma 3: {_INSTEAD}"
        )
    made.add_tokens(
        [AddedToken(token, normalized=False, special=special) for token, special in added.items()]
    )
    return made


def _merges_of(
    tokens: Sequence[str], scores: Sequence[float], vocabulary: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Returns the merges of a vocabulary of SentencePiece, which names none: a token is made of any two that it is put
    together of, those of a higher score first."""
    found = []
    for token, score in zip(tokens, scores, strict=True):
        halves = [(token[:at], token[at:]) for at in range(1, len(token))]
        known = [(one, other) for one, other in halves if one in vocabulary and other in vocabulary]
        known.sort(key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
        found += [(-score, pair) for pair in known]
    found.sort(key=lambda ranked: ranked[0])
    return [pair for _, pair in found]


class GgufEngine(LocalEngine):
    """A model of the architecture of Llama or Gemma 3 from a GGUF file, on NumPy: exact probabilities, no server, no
    GPU. Needs the extra `smol`.

    Args:
        path: The GGUF file.
        name: The name that scores and reports show. Empty: the name in the file.
    """

    def __init__(self, path: str | Path, *, name: str = "") -> None:
        file = open_gguf(path)
        name = name or str(file.value("general.name") or file.path.stem)
        super().__init__(Worker(f"the model {name}", partial(_open, file, name)))


def _open(file: GgufFile, name: str) -> Loaded:
    try:
        transformer, tokenizer = file.transformer(), GgufTokenizer(file)
        tokens = HfTokens(tokenizer, tokenizer.ends)
    except RagguardError:
        raise
    except Exception as error:  # what a file says of itself may be wrong in any way
        raise EngineRejected(
            f"{file.path} is no complete {file.architecture} model, or has a quantisation that the gguf library "
            f"cannot read ({describe(error)}): get it again, or in another quantisation, such as Q8_0 or Q4_1"
        ) from error
    size = f"{file.path.stat().st_size}".encode()
    identity = hashlib.sha256(size + ends_of(file.path)).hexdigest()[:16]
    info = described(name, "gguf", identity, transformer.config.max_position_embeddings)
    return Loaded(Network(transformer, tokens.ends), tokens, info)
