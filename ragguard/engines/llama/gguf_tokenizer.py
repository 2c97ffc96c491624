"""The tokenizer and the chat template of a GGUF file, with the methods that `HfTokens` uses.

The `tokenizers` library does the work; the file has the vocabulary and the merges, and names the way in which texts are
split beforehand. A vocabulary of SentencePiece, as Llama 2 has, is refused with the way out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragguard.engines.llama.gguf_file import GgufFile
from ragguard.errors import EngineRejected

_CONTROL, _USER_DEFINED = 3, 4
"""Kinds of tokens in GGUF that stand for themselves in a text."""
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
_SPLITS = ("smollm", "gpt-2", "default", "llama-bpe")


class GgufTokenizer:
    """A tokenizer made of a GGUF file."""

    def __init__(self, file: GgufFile) -> None:
        self._tokens: list[str] = file.lists("tokenizer.ggml.tokens")
        kinds = file.lists("tokenizer.ggml.token_type")
        self._special = {i for i, kind in enumerate(kinds) if kind == _CONTROL}
        self.added_tokens_decoder = {
            i: self._tokens[i] for i, kind in enumerate(kinds) if kind in (_CONTROL, _USER_DEFINED)
        }
        """The tokens that stand for themselves in a text, by their ids."""
        self._tokenizer = _made(file, self._tokens, self.added_tokens_decoder)
        self._values = file.values
        self.chat_template = file.values.get("tokenizer.chat_template") or None

    @property
    def ends(self) -> frozenset[int]:
        """The tokens that end an answer."""
        keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
        return frozenset(int(self._values[key]) for key in keys if key in self._values)

    def __call__(self, text: str | Sequence[str], add_special_tokens: bool = False) -> Mapping[str, Any]:
        """Returns the ids of a text, or of each of several, under `input_ids`."""
        begin = self._values.get("tokenizer.ggml.bos_token_id")
        first = [int(begin)] if add_special_tokens and begin is not None else []
        if isinstance(text, str):
            return {"input_ids": first + self._tokenizer.encode(text, add_special_tokens=False).ids}
        found = self._tokenizer.encode_batch(list(text), add_special_tokens=False)
        return {"input_ids": [first + one.ids for one in found]}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Returns the text of ids."""
        shown = [i for i in ids if not (skip_special_tokens and i in self._special)]
        return str(self._tokenizer.decode(shown, skip_special_tokens=False))

    def apply_chat_template(
        self, turns: Sequence[Mapping[str, str]], tokenize: bool, add_generation_prompt: bool, **settings: Any
    ) -> str:
        """Returns the conversation as the text that the model was trained on."""
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        return environment.from_string(str(self.chat_template)).render(
            messages=turns,
            add_generation_prompt=add_generation_prompt,
            bos_token=self._named("bos"),
            eos_token=self._named("eos"),
            **settings,
        )

    def _named(self, name: str) -> str:
        token = self._values.get(f"tokenizer.ggml.{name}_token_id")
        return "" if token is None else self._tokens[int(token)]


def _refuse(message: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _made(file: GgufFile, tokens: list[str], added: Mapping[int, str]) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind = file.values.get("tokenizer.ggml.model")
    split = file.values.get("tokenizer.ggml.pre", "default")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if kind == "gpt2" and split in _SPLITS:
        merges = [tuple(merge.split(" ", 1)) for merge in file.lists("tokenizer.ggml.merges")]
        made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=split == "llama-bpe"))
        steps: list[Any] = []
        if split == "smollm":
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        if split == "llama-bpe":
            from tokenizers import Regex

            steps.append(pre_tokenizers.Split(Regex(_LLAMA3), behavior="isolated"))
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split != "llama-bpe"))
        made.pre_tokenizer = pre_tokenizers.Sequence(steps)
        made.decoder = decoders.ByteLevel()
    else:
        raise EngineRejected(
            f"{file.path} has a tokenizer of the kind {kind} ({split}); known is gpt2 ({', '.join(_SPLITS)}): serve "
            "the model with llama.cpp or Ollama and give the server's address"
        )
    made.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in added.values()])
    return made
