"""nano's tokenizer: one word, one token. It gives the same tokens as the exported `tokenizer.json`.

Words are runs of ASCII letters and digits (anything beyond ASCII counts as a letter), every other
printable character is a word, white space is dropped. No text becomes a special token: its characters become
punctuation and words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

from ragguard.engines.base import Message

PATTERN = r"NO-RESPONSE|'s(?![A-Za-z0-9])|[A-Za-z0-9\x80-\U0010FFFF]+|[!-/:-@\[-`{-~]"
UNKNOWN, BEGIN, END, ANSWER, NEWLINE = "<unk>", "<bos>", "<eos>", "<answer>", "\n"
SPECIAL = (UNKNOWN, BEGIN, END, ANSWER)
MARKER = "ragguardnano"
"""A word that only nano's vocabulary has as one token: an exported nano is recognised by it behind any server."""

_WORD = re.compile(PATTERN)
_TIGHT = re.compile(r" (?=[.,?!]|'s\b)")


class Tokenizer:
    """Converts text to ids and back, over a fixed list of words."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self.ids = {word: i for i, word in enumerate(self.words)}
        self.unknown, self.begin, self.end, self.answer = (self.ids[token] for token in SPECIAL)

    def __len__(self) -> int:
        return len(self.words)

    def split(self, text: str) -> list[str]:
        """Returns the words of a text, each punctuation mark among them."""
        return _WORD.findall(text)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text; none of them is special."""
        get, unknown = self.ids.get, self.unknown
        return [get(word, unknown) for word in _WORD.findall(text)]

    def unknown_words(self, text: str) -> list[str]:
        """Returns the words of a text that have no id."""
        return [word for word in self.split(text) if word not in self.ids]

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


@cache
def load_tokenizer() -> Tokenizer:
    """Returns the tokenizer that ships with the package."""
    return Tokenizer(json.loads((files(__package__) / "vocabulary.json").read_text(encoding="utf-8")))
