"""NanoEngine: the model that ships with ragguard, computed on NumPy in one thread that all nano engines share; its
tokenizer; and its export as a Hugging Face checkpoint, so that transformers and vLLM serve the very same model.

The folder `checkpoint` holds what is exported as it is: the network's size, the words, the chat template. One word is
one token, as in its `tokenizer.json`. Words are runs of ASCII letters and digits (anything beyond
ASCII counts as a letter), every other printable character is a word, white space is dropped. No text becomes a special
token: its characters become punctuation and words.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from functools import cache
from importlib.resources import as_file, files
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import Message, Prompt
from ragguard.engines.chat_frames import SpecialTokens
from ragguard.engines.llama.network import Network
from ragguard.engines.llama.transformer import Config, LayerWeights, Transformer
from ragguard.engines.local.local_engine import Loaded, LocalEngine, Worker, described
from ragguard.errors import UnfitText
from ragguard.runtime.per_process import PerProcess
from ragguard.runtime.threads import DaemonThreads

_MOST_UNKNOWN = 0.15
"""The largest share of unknown words in a prompt that is answered. Ordinary English has 15 to 70 %."""
_UNFIT = (
    "nano does not know {}. It is a tiny model of ragguard's own made-up world and understands nothing else: for real "
    'text point ragguard at a real model, such as engine="http://localhost:8000/v1", or engine="smol" after `ragguard '
    "fetch smol`"
)
_COMPARES = "Same:"
"""The end of a prompt that asks whether two answers mean the same."""
_QUESTION = "Question: "
"""The beginning of the line with the question, in every prompt of nano's."""


class NanoEngine(LocalEngine):
    """The language model that ships with ragguard: exact probabilities, on only NumPy, for `ragguard.world` only."""

    def __init__(self) -> None:
        # One computation at a time: NumPy uses all cores already, and two would only evict each other's cache.
        super().__init__(Worker("nano", _open, _thread))


_thread = PerProcess(lambda: DaemonThreads(1, "nano"))


@cache
def _open() -> Loaded:
    """Reads the shipped weights, which stay in memory when an engine is closed."""
    network, tokenizer = load_network(), load_tokenizer()
    identity = hashlib.sha256((files(__package__) / "weights.npz").read_bytes()).hexdigest()[:12]
    info = described("ragguard/nano", "nano", f"nano:{identity}", network.config.max_position_embeddings)
    note = "understands ragguard.world only; real text wants a real model"
    info = replace(info, prompts="nano", notes=(note,))
    return Loaded(network, tokenizer, info, profiled=True)


@cache
def load_network() -> Network:
    """Returns the network with the weights that ship with the package."""
    config, weights = _shipped("config.json"), _weights()
    whole = Config(**{field.name: config[field.name] for field in fields(Config) if field.name in config})
    layers = (
        LayerWeights(**{name: weights[name][i].astype(np.float32) for name in _MATRICES})
        for i in range(whole.num_hidden_layers)
    )
    embed, norm = (weights[name].astype(np.float32) for name in ("embed", "norm"))
    return Network(Transformer(whole, embed, norm, layers), load_tokenizer().ends)


def _weights() -> dict[str, NDArray[Any]]:
    """Returns the matrices that ship with the package."""
    with as_file(files(__package__) / "weights.npz") as path, np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _shipped(name: str) -> Any:
    """Returns the content of a JSON file of the checkpoint."""
    return json.loads((files(__package__) / "checkpoint" / name).read_text(encoding="utf-8"))


PATTERN = r"NO-RESPONSE|'s(?![A-Za-z0-9])|[A-Za-z0-9\x80-\U0010FFFF]+|[!-/:-@\[-`{-~]"
UNKNOWN, BEGIN, END, ANSWER, NEWLINE = "<unk>", "<bos>", "<eos>", "<answer>", "\n"
SPECIAL = (UNKNOWN, BEGIN, END, ANSWER)
_WORD = re.compile(PATTERN)
_TIGHT = re.compile(r" (?=[.,?!]|'s\b)")


class Tokenizer:
    """Converts text to ids and back, over a fixed list of words, and renders prompts: the `LocalTokens` of nano. Its
    chat template is ids and no text: no message can spell a part of it."""

    plain, folds, ending, special = False, False, "", SpecialTokens()

    def __init__(self, words: Iterable[str]) -> None:
        self.words = list(words)
        self.ids = {word: i for i, word in enumerate(self.words)}
        self.unknown, self.begin, self.end, self.answer = (self.ids[token] for token in SPECIAL)
        self.ends = frozenset({self.end})

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text; none of them is special."""
        return list(map(self.ids.get, _WORD.findall(text), repeat(self.unknown)))

    def encode_chat(self, messages: Iterable[Message]) -> list[int]:
        """Returns the ids of a conversation up to the token after which the model answers."""
        ids = [self.begin]
        for message in messages:
            if message.role == "assistant":
                ids += [self.answer, *self.encode(message.content), self.end]
            else:
                ids += self.encode(message.content)
        return [*ids, self.answer]

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids, without special tokens."""
        words = [self.words[i] for i in ids if self.words[i] not in SPECIAL]
        lines = " ".join(words).split(NEWLINE)
        return NEWLINE.join(_TIGHT.sub("", line.strip()) for line in lines)

    def rows(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Returns the token ids of each prompt. Raises UnfitText where nano does not know a seventh of the words of a
        prompt, any word of its question, or what tells apart two answers in it."""
        rows, unknown = [self.encode_chat(prompt.messages) for prompt in prompts], self.unknown
        share = max((row.count(unknown) / len(row) for row in rows), default=0.0)
        if share > _MOST_UNKNOWN:
            shown = math.ceil(1000 * share) / 1000
            words = f"{shown:.1%} of the words of a prompt (at most {_MOST_UNKNOWN:.0%} are allowed)"
            raise UnfitText(_UNFIT.format(words))
        strange = [prompt for prompt, row in zip(prompts, rows, strict=True) if unknown in row]
        if any(self._asks_strangely(prompt) for prompt in strange):
            raise UnfitText(_UNFIT.format("any word of the question"))
        if any(self._compares_strange_answers(prompt) for prompt in strange):
            raise UnfitText(_UNFIT.format("the words that tell two answers apart"))
        return rows

    async def render(self, prompts: Sequence[Prompt], deadline: float | None = None) -> list[list[int]]:
        return self.rows(prompts)

    async def continuations(
        self, texts: Sequence[str], deadline: float | None = None
    ) -> list[tuple[int, ...]]:
        """Returns the ids of texts; each word is one token, whatever stands before it."""
        return [tuple(self.encode(text)) or (self.unknown,) for text in texts]

    async def tokens(self, text: str, deadline: float | None = None) -> list[int]:
        return self.encode(text)

    async def text_of(self, ids: Sequence[int], deadline: float | None = None) -> str:
        return " ".join(self.words[token] for token in ids)

    def _asks_strangely(self, prompt: Prompt) -> bool:
        """Returns whether nano knows no word of the question, which a prompt of many known words would hide."""
        _, there, after = prompt.messages[-1].content.rpartition(_QUESTION)
        words = [word for word in _WORD.findall(after.partition("\n")[0]) if word.isalnum()]
        return bool(there and words) and not any(word in self.ids for word in words)

    def _compares_strange_answers(self, prompt: Prompt) -> bool:
        """Returns whether nano knows no word of an answer that a prompt compares, or none in which two differ."""
        if not prompt.messages[-1].content.endswith(_COMPARES):
            return False
        unknown = self.unknown
        seen: set[tuple[int, ...]] = set()
        for text in {prompt.messages[at].content[start:end] for at, start, end in prompt.cuttable}:
            ids = self.encode(text)
            merged = tuple(one for one, after in pairwise([*ids, -1]) if not one == after == unknown)
            if merged == (unknown,) or (unknown in merged and merged in seen):
                return True
            seen.add(merged)
        return False


@cache
def load_tokenizer() -> Tokenizer:
    """Returns the tokenizer that ships with the package."""
    return Tokenizer(_shipped("tokenizer.json")["model"]["vocab"])


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
    weights = _weights()
    tensors = {"model.embed_tokens.weight": weights["embed"], "model.norm.weight": weights["norm"]}
    for name, llama in _MATRICES.items():
        for i, layer in enumerate(weights[name]):
            tensors[f"model.layers.{i}.{llama}.weight"] = layer
    for file in (files(__package__) / "checkpoint").iterdir():
        (directory / file.name).write_bytes(file.read_bytes())
    _write_safetensors(directory / "model.safetensors", tensors)
    return sorted(path for path in directory.iterdir() if path.is_file())


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
