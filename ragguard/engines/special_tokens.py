"""Special tokens: the texts by which chat templates frame turns. In a passage they must stay plain text.

What a tokenizer or a server shows of a model's own tokens is neutralised where prompts become tokens. The texts of
families that are known are neutralised in every prompt, also for servers that show nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ragguard.engines.base import Message, Prompt

# Tokens of families of chat templates, and the frames of our own templates.
_FRAMES = re.compile(
    r"<(?=\||/?(?:s|bos|eos|pad|unk|sep|cls|mask|sop|eop|im_start|im_end|start_of_turn|end_of_turn|think|documents?"
    r"|query|answer|question|references?)\b|/?seed:)"
    r"|(?<=\|)>|\[(?=/?(?:INST|SYS|TOOL|THINK|SEP|CLS|MASK|PAD|UNK|BOS|EOS|[gs]MASK)|\|)|<(?=<SYS|</SYS)"
    r"|(?<=</SYS>)>|<(?=｜)|(?<=｜)>|◁(?=/?\w+▷)|\](?=~!?b[\[\]])",
    re.IGNORECASE,
)
_BRACKET = re.compile(r"[<>\[\]◁]")
_INSTEAD = str.maketrans({"<": "‹", ">": "›", "[": "⟦", "]": "⟧", "◁": "‹"})
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_LOOKS_SPECIAL = re.compile(r"[^\w\s]\S*\w\S*[^\w\s]")


def neutralise(text: str) -> str:
    """Returns the text without control and direction characters, and without brackets that could be part of a frame."""
    text = _CONTROL.sub("", text)
    if _BRACKET.search(text) is None:  # most passages hold nothing that can be part of a frame
        return text
    return _FRAMES.sub(lambda match: match.group().translate(_INSTEAD), text)


class SpecialTokens:
    """The special tokens of one model.

    Args:
        tokens: The texts that a tokenizer or a server shows. Texts that do not look like a special token, such as
            white space or a word, are ignored: they may stand in any passage.
    """

    def __init__(self, tokens: Iterable[str] = ()) -> None:
        self.tokens = frozenset(token for token in tokens if _LOOKS_SPECIAL.fullmatch(token))
        # Only the first character of a token is matched, so that tokens which overlap are all found.
        alternatives = [f"{re.escape(token[0])}(?={re.escape(token[1:])})" for token in sorted(self.tokens)]
        self._starts = re.compile("|".join(alternatives)) if alternatives else None

    def neutralised(self, prompts: Sequence[Prompt]) -> Sequence[Prompt]:
        """Returns the prompts with another first character in every special token. Lengths stay as they are, and so do
        the spans that may be cut."""
        if self._starts is None or not any(self._found(prompt) for prompt in prompts):
            return prompts
        return [self._plain(prompt) if self._found(prompt) else prompt for prompt in prompts]

    def _found(self, prompt: Prompt) -> bool:
        return self._starts is not None and any(self._starts.search(turn.content) for turn in prompt.messages)

    def _plain(self, prompt: Prompt) -> Prompt:
        assert self._starts is not None
        turns = [
            Message(turn.role, self._starts.sub(lambda match: _other(match.group()), turn.content))
            for turn in prompt.messages
        ]
        return replace(prompt, messages=tuple(turns))


def _other(character: str) -> str:
    replaced = character.translate(_INSTEAD)
    return "·" if replaced == character else replaced
