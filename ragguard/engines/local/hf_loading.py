"""Loads a model of transformers from the Hugging Face hub or a folder, on a device and in a number type.

Serves language models and classifiers alike.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ragguard.errors import EngineRejected, InvalidInput, MissingDependency
from ragguard.secrets import without_secrets

_DTYPES = ("auto", "float32", "float16", "bfloat16")
_ENDS = 2**20
"""The bytes at each end of a weight file that are read for its digest: enough to tell two trainings apart."""


@dataclass(frozen=True, slots=True)
class Source:
    """The name of the weights, and the device and number type for them. Wrong settings are refused at once."""

    name: str
    device: str | None
    dtype: str
    revision: str | None
    purpose: str

    def __post_init__(self) -> None:
        for package in ("torch", "transformers"):
            if find_spec(package) is None:
                raise MissingDependency(package, self.purpose, "hf")
        if self.dtype not in _DTYPES:
            raise InvalidInput("dtype", self.dtype, ", ".join(_DTYPES))
        looks_local = self.name.startswith((".", "/", "~")) or Path(self.name).exists()
        if looks_local and not (Path(self.name).expanduser() / "config.json").is_file():
            raise InvalidInput("model", self.name, "a folder with a config.json, or a name on the hub")

    @property
    def name_or_path(self) -> str:
        """The folder, or the name on the hub, as transformers takes it."""
        folder = Path(self.name).expanduser()
        return str(folder) if folder.exists() else self.name


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A model in memory, with its tokenizer."""

    model: Any
    tokenizer: Any
    identity: str
    """A text that differs for models that give different numbers."""
    device: str


def load(source: Source, kind: str) -> Pretrained:
    """Returns the weights and the tokenizer; `kind` is the name of a transformers auto class."""
    import torch
    import transformers

    device = source.device or ("cuda" if torch.cuda.is_available() else "cpu")
    on_cpu = torch.device(device).type == "cpu"
    if not on_cpu and torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise InvalidInput("device", device, "cpu: PyTorch sees no CUDA device here")
    # Half precision is slow and coarse on most CPUs.
    dtype = "float32" if source.dtype == "auto" and on_cpu else source.dtype
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source.name_or_path, revision=source.revision)
        model = getattr(transformers, kind).from_pretrained(
            source.name_or_path,
            revision=source.revision,
            dtype=dtype if dtype == "auto" else getattr(torch, dtype),
        )
        model = model.to(device).eval()
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise EngineRejected(
            f"transformers could not load {source.name} as {kind}: {_first_line(error)}; check the name, and that "
            "the weights are in this machine's cache or can be downloaded"
        ) from error
    except torch.OutOfMemoryError as error:
        raise EngineRejected(
            f"{source.name} does not fit into the memory of {device}: use a smaller model, dtype='bfloat16', "
            "or another device"
        ) from error
    identity = f"{weights_identity(source.name_or_path, model.config)} {model.dtype}"
    return Pretrained(model, tokenizer, identity, device)


def weights_identity(name_or_path: str, config: Any) -> str:
    """Returns the hub's commit, or a digest of a folder's files."""
    folder = Path(name_or_path)
    if not folder.is_dir():
        return str(getattr(config, "_commit_hash", None) or "")
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.suffix not in (".json", ".safetensors", ".bin", ".jinja"):
            continue
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\0".encode())
        with file.open("rb") as opened:
            digest.update(opened.read(_ENDS))
            opened.seek(max(0, size - _ENDS))
            digest.update(opened.read(_ENDS))
    return digest.hexdigest()[:16]


def context_of(config: Any, tokenizer: Any) -> int:
    """Returns the longest input in tokens: the lower limit of the config and the tokenizer."""
    said = [
        getattr(config.get_text_config(), "max_position_embeddings", None),
        getattr(tokenizer, "model_max_length", None),
    ]
    # Tokenizers without a limit say 10^30.
    known = [limit for limit in said if isinstance(limit, int) and 0 < limit < 10**8]
    return min(known, default=4096)


def _first_line(error: Exception) -> str:
    return without_secrets(str(error)).strip().partition("\n")[0][:300].rstrip(".")
