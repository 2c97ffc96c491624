"""NanoEngine: the model that ships with ragguard, computed on NumPy in one thread that all nano engines share."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.resources import as_file, files
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import EngineInfo, Prompt
from ragguard.engines.llama.model import NetworkModel
from ragguard.engines.llama.network import Config, LayerWeights, Network
from ragguard.engines.local.local_engine import (
    ComputingModel,
    Loaded,
    LocalEngine,
    ThreadModel,
)
from ragguard.engines.local.worker import Worker
from ragguard.engines.nano.tokenizer import Tokenizer, load_tokenizer
from ragguard.engines.special_tokens import SpecialTokens
from ragguard.engines.token_model import EXACT_CAPABILITIES, ModelReport, ProfiledModel
from ragguard.errors import UnfitText
from ragguard.runtime.notices import NOTICES
from ragguard.runtime.per_process import PerProcess
from ragguard.runtime.threads import DaemonThreads

_SHORT = 20_000
"""Characters that become ids in a few milliseconds."""
_MOST_UNKNOWN = 0.15
"""The largest share of unknown words in a prompt that is answered. Ordinary English has 15 to 70 %."""
_FOR_REAL_TEXT = (
    "It is a tiny model of ragguard's own made-up world and understands nothing else: for real text point ragguard at "
    'a real model, such as engine="http://localhost:8000/v1", or engine="smol" after `ragguard fetch smol`'
)
_NAMES = ("q", "k", "v", "o", "gate", "up", "down", "input_norm", "post_norm")
"""The matrices of a layer in the file of the weights."""
_STRANGE = "nano met words it does not know ({} in one prompt). {}."
_UNFIT = "nano does not know {:.1%} of the words of a prompt (at most {:.0%} are allowed). {}"
_STRANGE_ANSWERS = "nano does not know the words that tell two answers apart. {}"
_COMPARES = "Same:"
"""The end of a prompt that asks whether two answers mean the same."""


class NanoEngine(LocalEngine):
    """The language model that ships with ragguard: exact probabilities, on NumPy alone, for `ragguard.world` only."""

    def __init__(self) -> None:
        # One computation at a time: NumPy uses all cores already, and two would only evict each other's cache.
        super().__init__(ThreadModel(Worker("nano", _open, _thread)))

    async def look(self) -> ProfiledModel:
        """Loads the weights. They are always the same ones, and so is what could be found out about them."""
        model = await self.open()
        return ProfiledModel(model, model.loaded.report.info)


_thread = PerProcess(lambda: DaemonThreads(1, "nano"))


@cache
def _open() -> tuple[Loaded, ComputingModel]:
    """Reads the shipped weights, which stay in memory when an engine is closed."""
    network, tokenizer = load_network(), load_tokenizer()
    identity = hashlib.sha256((files(__package__) / "weights.npz").read_bytes()).hexdigest()[:12]
    info = EngineInfo(
        model="ragguard/nano",
        kind="nano",
        fingerprint=f"nano:{identity}",
        prompts="nano",
        context=network.config.max_position_embeddings,
        location="in this process",
        capabilities=EXACT_CAPABILITIES,
        notes=("understands ragguard.world only; real text wants a real model",),
    )
    loaded = Loaded(NanoTokens(tokenizer), ModelReport(info, identity))
    return loaded, NetworkModel(network, frozenset({tokenizer.end}))


@cache
def load_network() -> Network:
    """Returns the network with the weights that ship with the package."""
    with as_file(files(__package__) / "weights.npz") as path, np.load(path) as arrays:
        config = json.loads(bytes(arrays["config"]).decode())
        weights = {name: arrays[name].astype(np.float32) for name in arrays.files if name != "config"}
    whole = Config(**config, num_key_value_heads=config["num_attention_heads"])
    return Network(whole, weights["embed"], weights["norm"], _layers(whole, weights))


def _layers(config: Config, weights: Mapping[str, NDArray[Any]]) -> Iterator[LayerWeights]:
    for i in range(config.num_hidden_layers):
        yield LayerWeights(**{name: weights[name][i] for name in _NAMES})


class NanoTokens:
    """nano's tokenizer and chat template, with the methods of `LocalTokens`. The template is ids and no text: no
    message can spell a part of it."""

    plain, folds, ending, special = False, False, "", SpecialTokens()

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    async def rows(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Returns the token ids of each prompt; the first strange word in the process is warned about. Raises
        UnfitText where nano does not know a seventh of the words of a prompt, or what tells apart two answers in it."""
        rows = await self.render(prompts)
        unknown = self._tokenizer.unknown
        share = max((row.count(unknown) / len(row) for row in rows), default=0.0)
        if share > _MOST_UNKNOWN:
            raise UnfitText(_UNFIT.format(math.ceil(1000 * share) / 1000, _MOST_UNKNOWN, _FOR_REAL_TEXT))
        strange = [prompt for prompt, row in zip(prompts, rows, strict=True) if unknown in row]
        if any(self._compares_strange_answers(prompt) for prompt in strange):
            raise UnfitText(_STRANGE_ANSWERS.format(_FOR_REAL_TEXT))
        for prompt in strange[:1]:
            # The number and not the words: a log is no place for what a user asked.
            NOTICES.once("words that nano does not know", partial(self._strange, prompt))
        return rows

    async def render(self, prompts: Sequence[Prompt], deadline: float | None = None) -> list[list[int]]:
        """Returns the ids of each prompt; in a thread where they are long enough to hold an event loop up."""

        def encode() -> list[list[int]]:
            return [self._tokenizer.encode_chat(prompt.messages) for prompt in prompts]

        length = sum(len(message.content) for prompt in prompts for message in prompt.messages)
        return encode() if length < _SHORT else await asyncio.to_thread(encode)

    async def continuations(
        self, texts: Sequence[str], deadline: float | None = None
    ) -> list[tuple[int, ...]]:
        """Returns the ids of texts; each word is one token, whatever stands before it."""
        return [tuple(self._tokenizer.encode(text)) or (self._tokenizer.unknown,) for text in texts]

    async def count(self, prompts: Sequence[Prompt], deadline: float | None = None) -> list[int]:
        return [len(row) for row in await self.render(prompts)]

    async def tokens(self, text: str, deadline: float | None = None) -> list[int]:
        return self._tokenizer.encode(text)

    async def text_of(self, ids: Sequence[int], deadline: float | None = None) -> str:
        return " ".join(self._tokenizer.words[token] for token in ids)

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids)

    def _compares_strange_answers(self, prompt: Prompt) -> bool:
        """Returns whether nano knows no word of an answer that a prompt compares, or none in which two differ."""
        if not prompt.messages[-1].content.endswith(_COMPARES):
            return False
        unknown = self._tokenizer.unknown
        seen: set[tuple[int, ...]] = set()
        for text in {prompt.messages[at].content[start:end] for at, start, end in prompt.cuttable}:
            ids = self._tokenizer.encode(text)
            merged = tuple(one for one, after in pairwise([*ids, -1]) if not one == after == unknown)
            if merged == (unknown,) or (unknown in merged and merged in seen):
                return True
            seen.add(merged)
        return False

    def _strange(self, prompt: Prompt) -> str:
        words = {word for turn in prompt.messages for word in self._tokenizer.unknown_words(turn.content)}
        return _STRANGE.format(len(words), _FOR_REAL_TEXT)
