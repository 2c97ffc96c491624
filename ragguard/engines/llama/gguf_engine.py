"""GgufEngine: a model of the Llama architecture from a GGUF file, computed on NumPy in this process."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ragguard.engines.base import EngineInfo
from ragguard.engines.llama.gguf_file import GgufFile, open_gguf
from ragguard.engines.llama.gguf_tokenizer import GgufTokenizer
from ragguard.engines.llama.model import NetworkModel
from ragguard.engines.local.local_engine import (
    ComputingModel,
    Loaded,
    LocalEngine,
    ThreadModel,
)
from ragguard.engines.local.pretrained import HfTokens
from ragguard.engines.local.worker import Worker
from ragguard.engines.token_model import EXACT_CAPABILITIES, ModelReport


class GgufEngine(LocalEngine):
    """A Llama-family model from a GGUF file, on NumPy: exact probabilities, no server, no GPU. Needs the extra `smol`.

    Args:
        path: The GGUF file.
        name: The name that scores and reports show. Empty: the name in the file.
    """

    def __init__(self, path: str | Path, *, name: str = "") -> None:
        file = open_gguf(path)
        worker = Worker(f"the model {name or file.name}", partial(_open, file, name or file.name))
        super().__init__(ThreadModel(worker))


def _open(file: GgufFile, name: str) -> tuple[Loaded, ComputingModel]:
    network, tokenizer = file.network(), GgufTokenizer(file)
    info = EngineInfo(
        model=name,
        kind="gguf",
        fingerprint="",
        context=network.config.max_position_embeddings,
        location="in this process",
        capabilities=EXACT_CAPABILITIES,
    )
    loaded = Loaded(HfTokens(tokenizer), ModelReport(info, file.identity()))
    return loaded, NetworkModel(network, tokenizer.ends)
