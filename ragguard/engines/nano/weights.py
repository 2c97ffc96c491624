"""The weights of nano, which ship with the package, as a network on NumPy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import as_file, files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.llama.network import Config, LayerWeights, Network

_NAMES = ("q", "k", "v", "o", "gate", "up", "down", "input_norm", "post_norm")


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
