"""Cuts prompts that are too long: only spans in `Prompt.cuttable`, which are passages and not the question.

All engines use this rule, and differ in how they count tokens. The number of tokens cut is returned, to be recorded.
Where counting costs a request, an engine calls it only after the server has said that a prompt is too long.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from ragguard.engines.base import Message, Prompt, Span
from ragguard.errors import InvalidInput, PromptTooLong

T = TypeVar("T")

_CUTS = 4
_CHARACTERS_PER_TOKEN = 3.0
"""An estimate, lower than usual, for servers that tell the limit but not the prompt's length."""


async def fit(
    prompts: Sequence[Prompt], count: Callable[[Sequence[Prompt]], Awaitable[Sequence[int]]], limit: int
) -> tuple[list[Prompt], dict[int, int]]:
    """Returns the prompts, each cut to at most `limit` tokens, and the tokens cut from them (index → tokens). `count`
    returns the tokens of each prompt as the model will get it, chat template included.

    Spans are cut in the order of `cuttable`, each from its end backwards, at a space where there is one: as much as the
    length of a token in the prompt suggests, then, by that of the tokens that were cut, the rest. Raises PromptTooLong
    for a prompt that does not fit without its spans, or that has none.
    """
    fitted, before = list(prompts), dict(enumerate(await count(prompts)))
    tokens, gone = dict(before), dict.fromkeys(before, 0)
    while long := [index for index in tokens if tokens[index] > limit]:
        for index in long:
            prompt, room = prompts[index], _room(prompts[index])
            if gone[index] >= room:
                left = f"and {tokens[index]} are left when all that may be cut is gone"
                why = left if room else "and nothing in it may be cut"
                fitting = f"{limit} fit" if limit > 0 else "none fits beside as much output as was asked for"
                raise PromptTooLong(
                    f"prompt {index} has {before[index]} tokens, {fitting}, {why}: give fewer or shorter passages, ask "
                    "for fewer output tokens, or serve the model with more context",
                    limit=limit,
                    tokens=before[index],
                )
            removed = before[index] - tokens[index]
            per_token = gone[index] / removed if removed > 0 else _characters(prompt) / before[index]
            gone[index] = min(room, gone[index] + math.ceil((tokens[index] - limit) * per_token))
            fitted[index] = shorten(prompt, gone[index])
        tokens.update(zip(long, await count([fitted[index] for index in long]), strict=True))
    return fitted, {index: before[index] - tokens[index] for index in gone if gone[index]}


async def asked_shorter(
    prompt: Prompt, ask: Callable[[Prompt], Awaitable[T]], answer_tokens: int
) -> tuple[T, int]:
    """Returns what `ask` returns for a prompt, and the tokens that were cut from it.

    For servers that alone can count their tokens: a prompt that is refused is cut by the numbers in the error, so that
    `answer_tokens` are left for the answer.
    """
    cut = attempts = 0
    while True:
        try:
            return await ask(prompt), cut
        except PromptTooLong as error:
            attempts += 1
            if not error.limit or not prompt.cuttable or attempts > _CUTS:
                raise
            tokens = error.tokens or _characters(prompt) / _CHARACTERS_PER_TOKEN
            # A tenth more each time, since tokens differ in length.
            density = tokens / max(1, _characters(prompt)) * (1 + attempts / 10)

            async def count(some: Sequence[Prompt], density: float = density) -> list[int]:
                return [math.ceil(density * _characters(one)) for one in some]

            (prompt,), taken = await fit([prompt], count, error.limit - answer_tokens)
            cut += taken.get(0, 0)


def _characters(prompt: Prompt) -> int:
    return sum(len(message.content) for message in prompt.messages)


def _room(prompt: Prompt) -> int:
    """Returns how many characters may be cut; raises InvalidInput for spans that are not in the prompt."""
    for span in prompt.cuttable:
        inside = 0 <= span.message < len(prompt.messages) and 0 <= span.start <= span.end
        if not inside or span.end > len(prompt.messages[span.message].content):
            raise InvalidInput("cuttable", tuple(span), "stretches of the prompt's own messages")
    return sum(span.end - span.start for span in prompt.cuttable)


def shorten(prompt: Prompt, characters: int) -> Prompt:
    """Returns the prompt with at least so many characters cut from its spans, beginning with the first span."""
    ends = {}
    for span in prompt.cuttable:
        cut = min(characters, span.end - span.start)
        at, text = span.end - cut, prompt.messages[span.message].content
        ends[span] = _word_end(text, span.start, at) if cut else at
        characters -= cut
    messages, moved = [], {}
    for index, (role, text) in enumerate(prompt.messages):
        pieces, at, gone = [], 0, 0
        for span in sorted(span for span in ends if span.message == index):
            pieces.append(text[at : ends[span]])
            moved[span] = Span(index, span.start - gone, ends[span] - gone)
            at, gone = span.end, gone + span.end - ends[span]
        messages.append(Message(role, "".join([*pieces, text[at:]])))
    kept = [moved[span] for span in prompt.cuttable if ends[span] > span.start]
    return replace(prompt, messages=tuple(messages), cuttable=tuple(kept))


def _word_end(text: str, start: int, at: int) -> int:
    """Returns the nearest position at or before `at` where a word ends; `at` in text without spaces nearby."""
    for position in range(at, max(start, at - 40), -1):
        if text[position].isspace():
            return position
    return at
