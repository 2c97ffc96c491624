"""Cuts prompts that are too long: only spans in `Prompt.cuttable`, which are passages and not the question.

All engines use this rule, and differ in how they count tokens. The number of tokens cut is returned, to be recorded.
Where counting costs a request, an engine calls it only after the server has said that a prompt is too long.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from ragguard.engines.base import Message, Prompt, Span
from ragguard.errors import InvalidInput, PromptTooLong

Count: TypeAlias = Callable[[Sequence[Prompt]], Awaitable[Sequence[int]]]
"""Returns the tokens of each prompt as the model will get it, chat template included."""

# A cut that leaves so few tokens unused is good enough to stop looking: these, or this share of the limit.
_SLACK, _SLACK_SHARE = 8, 1 / 64
_ROUNDS = 12


async def fit(prompts: Sequence[Prompt], count: Count, limit: int) -> tuple[list[Prompt], dict[int, int]]:
    """Returns the prompts, each cut to at most `limit` tokens, and the tokens cut from them (index → tokens).

    Spans are cut in the order of `cuttable`, each from its end backwards, at a space where there is one. Raises
    PromptTooLong for a prompt that still does not fit, or that has no spans.
    """
    fitted = list(prompts)
    lengths = await count(fitted) if fitted else []
    long = {index: length for index, length in enumerate(lengths) if length > limit}
    searches: dict[int, _Search] = {}
    shortest = {index: shorten(prompts[index], _room(prompts[index])) for index in long}
    least = await count(list(shortest.values())) if long else []
    for (index, prompt), tokens in zip(shortest.items(), least, strict=True):
        if tokens > limit:
            left = f"and {tokens} are left when all that may be cut is gone"
            why = left if _room(prompts[index]) else "and nothing in it may be cut"
            raise _too_long(index, long[index], limit, why)
        searches[index] = _Search(prompts[index], long[index], prompt, tokens, limit)
    for turn in range(_ROUNDS):
        asked = {index: search.attempt(turn) for index, search in searches.items() if not search.done}
        if not asked:
            break
        for (index, shorter), tokens in zip(asked.items(), await count(list(asked.values())), strict=True):
            searches[index].learn(shorter, tokens)
    cut: dict[int, int] = {}
    for index, search in searches.items():
        fitted[index], cut[index] = search.best, long[index] - search.best_tokens
    return fitted, cut


class _Search:
    """A search for the fewest characters to cut from a prompt, by interpolation, or by halves where that is slow.

    `best` is the longest prompt so far that fits; it has `_high` characters less than the whole one.
    """

    def __init__(self, prompt: Prompt, tokens: int, shortest: Prompt, least: int, limit: int) -> None:
        self._prompt, self._limit = prompt, limit
        self._slack = max(_SLACK, limit * _SLACK_SHARE)
        self._low, self._low_tokens, self._tried = 0, tokens, 0
        self._high, self.best, self.best_tokens = _room(prompt), shortest, least

    @property
    def done(self) -> bool:
        """True where the best prompt leaves few tokens unused, or no cut lies between the two that were tried."""
        return self._limit - self.best_tokens <= self._slack or self._high - self._low <= 1

    def attempt(self, turn: int) -> Prompt:
        """Returns the next prompt whose tokens are to be counted."""
        wanted = self._low_tokens - self._limit + self._slack / 2
        share = min(0.95, max(0.05, wanted / max(1, self._low_tokens - self.best_tokens)))
        if turn > 3 and turn % 2:
            share = 0.5
        self._tried = self._low + max(1, int((self._high - self._low) * share))
        return shorten(self._prompt, self._tried)

    def learn(self, shorter: Prompt, tokens: int) -> None:
        """Takes in how many tokens the prompt of the last attempt has."""
        if tokens > self._limit:
            self._low, self._low_tokens = self._tried, tokens
        else:
            self._high, self.best, self.best_tokens = self._tried, shorter, tokens


def _room(prompt: Prompt) -> int:
    """Returns how many characters may be cut; raises InvalidInput for spans that are not in the prompt."""
    for span in prompt.cuttable:
        inside = 0 <= span.message < len(prompt.messages) and 0 <= span.start <= span.end
        if not inside or span.end > len(prompt.messages[span.message].content):
            raise InvalidInput("cuttable", tuple(span), "stretches of the prompt's own messages")
    return sum(span.end - span.start for span in prompt.cuttable)


def shorten(prompt: Prompt, characters: int) -> Prompt:
    """Returns the prompt with at least so many characters cut from its spans, beginning with the first span."""
    gone: list[Span] = []
    kept: list[Span] = []
    for span in prompt.cuttable:
        length = span.end - span.start
        if characters >= length:
            gone.append(span)
            characters -= length
            continue
        if characters > 0:
            text = prompt.messages[span.message].content
            at = _word_end(text, span.start, span.end - characters)
            gone.append(Span(span.message, at, span.end))
            span = Span(span.message, span.start, at)
            characters = 0
        if span.end > span.start:
            kept.append(span)
    messages = tuple(
        Message(message.role, _without(message.content, [cut for cut in gone if cut.message == index]))
        for index, message in enumerate(prompt.messages)
    )
    return Prompt(messages, tuple(_moved(span, gone) for span in kept), prompt.text)


def _word_end(text: str, start: int, at: int) -> int:
    """Returns the nearest position at or before `at` where a word ends; `at` in text without spaces nearby."""
    for position in range(at, max(start, at - 40), -1):
        if text[position].isspace():
            return position
    return at


def _without(text: str, cuts: Sequence[Span]) -> str:
    for cut in sorted(cuts, key=lambda span: span.start, reverse=True):
        text = text[: cut.start] + text[cut.end :]
    return text


def _moved(span: Span, gone: Sequence[Span]) -> Span:
    shift = sum(c.end - c.start for c in gone if c.message == span.message and c.start < span.start)
    return Span(span.message, span.start - shift, span.end - shift)


def _too_long(index: int, tokens: int, limit: int, why: str) -> PromptTooLong:
    fit = f"{limit} fit" if limit > 0 else "none fits beside as much output as was asked for"
    return PromptTooLong(
        f"prompt {index} has {tokens} tokens, {fit}, {why}: "
        "give fewer or shorter passages, ask for fewer output tokens, or serve the model with more context",
        limit=limit,
        tokens=tokens,
    )
