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
    cut: dict[int, int] = {}
    searches = {index: _Search(fitted[index], n, limit) for index, n in enumerate(lengths) if n > limit}
    for index, search in searches.items():
        if not search.room:
            raise _too_long(index, search.tokens, limit, "and nothing in it may be cut")
    for _ in range(_ROUNDS):
        asked = {index: search.attempt() for index, search in searches.items() if not search.done}
        if not asked:
            break
        for (index, shorter), tokens in zip(asked.items(), await count(list(asked.values())), strict=True):
            searches[index].learn(shorter, tokens)
    for index, search in searches.items():
        if search.best is None:
            left = f"and {search.least} are left when all that may be cut is gone"
            raise _too_long(index, search.tokens, limit, left)
        fitted[index], cut[index] = search.best, search.tokens - search.best_tokens
    return fitted, cut


class _Search:
    """A search for the fewest characters to cut from a prompt, by interpolation, or by halves where that is slow."""

    def __init__(self, prompt: Prompt, tokens: int, limit: int) -> None:
        self.prompt, self.tokens, self.limit = prompt, tokens, limit
        self._slack = max(_SLACK, limit * _SLACK_SHARE)
        for span in prompt.cuttable:
            inside = 0 <= span.message < len(prompt.messages) and 0 <= span.start <= span.end
            if not inside or span.end > len(prompt.messages[span.message].content):
                raise InvalidInput("cuttable", tuple(span), "stretches of the prompt's own messages")
        self.room = sum(span.end - span.start for span in prompt.cuttable)
        self.best: Prompt | None = None
        self.best_tokens = self.least = tokens
        self._low, self._low_tokens = 0, tokens
        self._high: int | None = None
        self._tried = 0
        self._turns = 0
        self.done = False

    def attempt(self) -> Prompt:
        self._turns += 1
        if self._high is None:
            characters = sum(len(message.content) for message in self.prompt.messages)
            per_token = max(1.0, characters / max(1, self.tokens))
            step = int((self._low_tokens - self.limit + self._slack / 2) * per_token) + 1
            # The third guess is everything: after it the limit is bracketed or known to be out of reach.
            self._tried = self.room if self._turns > 2 else min(self.room, self._low + step)
        else:
            aim = self._low_tokens - self.limit + self._slack / 2
            share = min(0.95, max(0.05, aim / max(1, self._low_tokens - self.best_tokens)))
            inside = share if self._turns <= 4 or self._turns % 2 else 0.5
            self._tried = self._low + max(1, int((self._high - self._low) * inside))
        return shorten(self.prompt, self._tried)

    def learn(self, shorter: Prompt, tokens: int) -> None:
        if tokens > self.limit:
            self._low, self._low_tokens, self.least = self._tried, tokens, min(self.least, tokens)
            self.done = self._tried >= self.room
        else:
            self._high, self.best, self.best_tokens = self._tried, shorter, tokens
            self.done = self.limit - tokens <= self._slack
        if self._high is not None and self._high - self._low <= 1:
            self.done = True


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
