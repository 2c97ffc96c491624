"""A pretrained model of the Hugging Face hub or of a folder: its weights, loaded on a device and in a number type, and
its tokenizer with its chat template.

Serves language models and classifiers alike. The tokenizer follows the same rules as `http/templates.py`, which learns
a template from its server.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ragguard.engines.base import Message, Prompt, as_turns, folded
from ragguard.engines.chat_frames import (
    LINE_ENDS,
    PLAIN_ANSWER,
    QUESTION,
    SWITCH_OFF,
    SpecialTokens,
    plain_text,
)
from ragguard.errors import EngineRejected, InvalidInput, MissingDependency
from ragguard.text.secret_filter import without_secrets

_SYSTEM_MARK = "Q 7 Z 4 X"
_DTYPES = ("auto", "float32", "float16", "bfloat16")
_ENDS = 2**20
"""The bytes at each end of a file of weights that are read for its digest."""
_PADDING = 0.25
"""Rows of one batch differ in length by at most this share: little is computed for padding."""


@dataclass(frozen=True, slots=True)
class Source:
    """The name of the weights, and the device and number type for them. Wrong settings are refused at once."""

    name: str
    device: str | None
    dtype: str
    revision: str | None

    def __post_init__(self) -> None:
        for package in ("torch", "transformers"):
            if find_spec(package) is None:
                raise MissingDependency(package, "a model of transformers", "hf")
        if self.dtype not in _DTYPES:
            raise InvalidInput("dtype", self.dtype, ", ".join(_DTYPES))
        checked_name(self.name)


def checked_name(name: str) -> str:
    """Returns a model's folder, its GGUF file, or its name on the hub; refuses a folder without a model."""
    folder = Path(name).expanduser()
    if folder.is_file() and folder.suffix == ".gguf":
        if find_spec("gguf") is None or find_spec("accelerate") is None:
            raise InvalidInput(
                "model", name, "read by transformers with two more packages: pip install accelerate gguf"
            )
        return str(folder)
    if (folder.exists() or name.startswith((".", "/", "~"))) and not (folder / "config.json").is_file():
        raise InvalidInput("model", name, "a folder with a config.json, a GGUF file, or a name on the hub")
    return str(folder) if folder.exists() else name


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A model in memory, with its tokenizer."""

    model: Any
    tokenizer: Any
    identity: str
    """A text that differs for models that give different numbers."""
    device: str

    @property
    def context(self) -> int:
        """The longest input in tokens: the lower limit of the config and the tokenizer."""
        said = [
            getattr(self.model.config.get_text_config(), "max_position_embeddings", None),
            getattr(self.tokenizer, "model_max_length", None),
        ]
        # Tokenizers without a limit say 10^30.
        known = [limit for limit in said if isinstance(limit, int) and 0 < limit < 10**8]
        return min(known, default=4096)


def load(source: Source, kind: str) -> Pretrained:
    """Returns the weights and the tokenizer; `kind` is the name of a transformers auto class."""
    import torch
    import transformers

    device = source.device or ("cuda" if torch.cuda.is_available() else "cpu")
    # Half precision is slow and coarse on most CPUs.
    dtype = "float32" if source.dtype == "auto" and torch.device(device).type == "cpu" else source.dtype
    name, known = checked_name(source.name), {"revision": source.revision}
    folder = name
    if name.endswith(".gguf"):
        folder, known["gguf_file"] = os.path.split(os.path.abspath(name))
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **known)
        model = getattr(transformers, kind).from_pretrained(
            folder, **known, dtype=dtype if dtype == "auto" else getattr(torch, dtype)
        )
        model = model.to(device).eval()
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, AssertionError) as error:
        said = without_secrets(str(error)).strip().partition("\n")[0][:300].rstrip(".")
        raise EngineRejected(
            f"transformers could not load {source.name} as {kind} on {device}: {said}; check the name, the device and "
            "its memory, and that the weights are in this machine's cache or can be downloaded"
        ) from error
    return Pretrained(model, tokenizer, f"{weights_identity(name, model.config)} {model.dtype}", device)


def weights_identity(name_or_path: str, config: Any) -> str:
    """Returns the hub's commit, or a digest of a file or of a folder's files."""
    folder = Path(name_or_path)
    if folder.is_file():
        return hashlib.sha256(ends_of(folder)).hexdigest()[:16]
    if not folder.is_dir():
        return str(getattr(config, "_commit_hash", None) or "")
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.suffix in (".json", ".safetensors", ".bin", ".jinja"):
            digest.update(f"{file.name} {file.stat().st_size}\0".encode() + ends_of(file))
    return digest.hexdigest()[:16]


def ends_of(file: Path) -> bytes:
    """Returns the bytes at both ends of a file of weights: enough to tell two trainings apart."""
    with file.open("rb") as opened:
        first = opened.read(_ENDS)
        opened.seek(max(0, file.stat().st_size - _ENDS))
        return first + opened.read(_ENDS)


def batches(lengths: Sequence[int], fit: Callable[[int], int]) -> Iterator[list[int]]:
    """Yields the indices of rows that are computed together, of similar length. `fit` says how many rows fit into one
    batch, given the index of its longest."""
    rest = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    while rest:
        least = lengths[rest[0]] * (1 - _PADDING)
        batch = [index for index in rest[: max(1, fit(rest[0]))] if lengths[index] >= least]
        yield batch
        rest = rest[len(batch) :]


class HfTokens:
    """A Hugging Face tokenizer and its chat template, with the methods of `LocalTokens`.

    Args:
        tokenizer: The tokenizer.
        ends: The ids that end an answer; those by which the template ends one, or a line where there is no template,
            are added.
    """

    def __init__(self, tokenizer: Any, ends: Iterable[int] = ()) -> None:
        self._tokenizer = tokenizer
        # Rust tokenizers refuse to be used while another thread sets their options.
        self._lock = threading.Lock()
        self.plain = not getattr(tokenizer, "chat_template", None)
        self.folds = not self.plain and self._loses_system()
        self.ending = ""
        self.special = SpecialTokens(map(str, tokenizer.added_tokens_decoder.values()))
        self.ends = frozenset({*ends, *self._endings()})

    def _endings(self) -> list[int]:
        """Returns the ids with which the template ends an answer; where there is none, those that end a line."""
        if self.plain:
            before = self._encode([PLAIN_ANSWER])[0]
            lines = self._encode([PLAIN_ANSWER + end for end in LINE_ENDS])
            return [ids[-1] for ids in lines if ids[:-1] == before]
        try:
            text = self._templated((Message("user", _SYSTEM_MARK), Message("assistant", PLAIN_ANSWER)))
        except Exception:  # noqa: BLE001 - a template may refuse an answer in any way
            return []
        _, _, after = text.rpartition(PLAIN_ANSWER)
        return self._encode([after.lstrip()], begin=False)[0][:1]

    async def render(self, prompts: Sequence[Prompt], deadline: float | None = None) -> list[str]:
        return [self._text(prompt) for prompt in prompts]

    def rows(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        return self._encode([self._text(prompt) for prompt in prompts])

    async def continuations(
        self, texts: Sequence[str], deadline: float | None = None
    ) -> list[tuple[int, ...]]:
        start = self._text(QUESTION)
        before, *after = self._encode([start, *(start + text for text in texts)])
        found = []
        for text, ids in zip(texts, after, strict=True):
            rest = ids[len(before) :] if ids[: len(before)] == before else await self.tokens(text)
            if not rest:
                raise InvalidInput("labels", text, "texts of which the model's tokenizer makes tokens")
            found.append(tuple(rest))
        return found

    async def tokens(self, text: str, deadline: float | None = None) -> list[int]:
        return self._encode([text], begin=False)[0]

    async def text_of(self, ids: Sequence[int], deadline: float | None = None) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True)).strip()

    def _text(self, prompt: Prompt) -> str:
        if self.plain:
            return plain_text(prompt.messages) + self.ending
        from jinja2 import TemplateError

        try:
            return self._templated(folded(prompt.messages) if self.folds else prompt.messages) + self.ending
        except TemplateError as error:
            raise EngineRejected(f"the model's chat template refuses a conversation: {error}") from error

    def _encode(self, texts: Sequence[str], *, begin: bool = True) -> list[list[int]]:
        # An unpaired surrogate is no text that a tokenizer takes; it becomes a question mark.
        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        with self._lock:
            encoded = self._tokenizer(clean, add_special_tokens=self.plain and begin)
            return [list(ids) for ids in encoded["input_ids"]]

    def _templated(self, messages: Sequence[Message]) -> str:
        turns = as_turns(messages)
        return str(
            self._tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=True, **SWITCH_OFF
            )
        )

    def _loses_system(self) -> bool:
        from jinja2 import TemplateError

        try:
            return _SYSTEM_MARK not in self._templated(
                (Message("system", _SYSTEM_MARK), Message("user", "Hello"))
            )
        except TemplateError:
            return True
