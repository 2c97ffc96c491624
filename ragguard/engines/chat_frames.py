"""Texts that have a special meaning in chat templates: special tokens, which frame turns, and the marks of thoughts.

Special tokens must stay plain text in a passage. What a tokenizer or a server shows of a model's own is neutralised
where prompts become tokens; the texts of families that are known are neutralised in every prompt.

Some models think before they answer, so that their first token belongs to a thought and not to a label. Chat templates
have a switch, or an empty thought is put before the answer. Where neither works, answers are sampled and their thoughts
are cut off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ragguard.engines.base import Message, Prompt, as_prompt

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
        if (starts := self._starts) is None:
            return prompts
        turns = (
            [Message(role, starts.sub(_other, text)) for role, text in prompt.messages] for prompt in prompts
        )
        return [replace(prompt, messages=tuple(own)) for prompt, own in zip(prompts, turns, strict=True)]


def _other(match: re.Match[str]) -> str:
    replaced = match.group().translate(_INSTEAD)
    return "·" if replaced == match.group() else replaced


def plain_text(messages: Sequence[Message]) -> str:
    """Returns the prompt of a model without a chat template. It ends with a colon, behind which the answer follows."""
    text = "\n\n".join(message.content for message in messages).rstrip()
    return text if text.endswith(":") or not text else f"{text}\nAnswer:"


PLAIN_ANSWER = "Question: Who?\nAnswer: Ada"
LINE_ENDS = ("\n", "\n\n", "\n\n\n")
"""The texts that end an answer of a model without a chat template, which goes on with the next question."""

SWITCH_OFF = {"enable_thinking": False, "thinking": False}
"""Chat-template arguments by which the common templates switch thinking off; others ignore them."""

QUESTION = as_prompt(
    "Which letter comes first in the alphabet?\nA: the letter A\nB: the letter B\nReply with A or B and nothing else."
)
"""A question that is asked at first use: a model that answers at once puts its probability on the two letters."""
LETTERS = ("A", "B")


class Thought(NamedTuple):
    """The texts with which a family of models begins and ends its thoughts."""

    opens: str
    closes: str
    empty: str
    """The text of an empty thought: put before the answer, it makes the model answer at once."""


def _tagged(opens: str, closes: str) -> Thought:
    return Thought(opens, closes, f"{opens}\n\n{closes}\n\n")


THOUGHTS = (
    _tagged("<think>", "</think>"),
    _tagged("<thinking>", "</thinking>"),
    _tagged("<thought>", "</thought>"),
    _tagged("<reasoning>", "</reasoning>"),
    _tagged("<seed:think>", "</seed:think>"),
    _tagged("[THINK]", "[/THINK]"),
    _tagged("<|START_THINKING|>", "<|END_THINKING|>"),
    _tagged("◁think▷", "◁/think▷"),
    # This family thinks in a separate channel; opening the other channel skips the thought.
    Thought("<|channel|>analysis", "<|channel|>final<|message|>", "<|channel|>final<|message|>"),
)


def begun_thought(answer: str) -> Thought | None:
    """Returns the kind of thought that an answer begins with; None where it begins with none."""
    start = answer.lstrip()
    for thought in THOUGHTS:
        if start.startswith(thought.opens):
            return thought
    return None


def open_thought(prompt: str) -> Thought | None:
    """Returns the kind of thought that a rendered prompt leaves open at its end; None where it opens none."""
    return next((thought for thought in THOUGHTS if prompt.rstrip().endswith(thought.opens)), None)


def without_reasoning(answer: str) -> tuple[str, bool]:
    """Returns the answer after its thought, and False where the thought did not end."""
    for thought in THOUGHTS:
        # The opening may stand in the prompt, so the closing alone is enough.
        _, closed, rest = answer.rpartition(thought.closes)
        if closed:
            return rest.strip(), True
    return (answer, True) if begun_thought(answer) is None else ("", False)
