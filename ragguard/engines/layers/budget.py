"""Budget: refuses what would overspend, before it is sent.

A call first reserves the most it can cost, then settles what it did cost. So concurrent calls
cannot overspend together, and what the engine does not report is settled as reserved.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ragguard.engines.base import (
    Engine,
    EngineInfo,
    LabelMode,
    LabelProbs,
    Prompt,
    PromptLike,
    Samples,
    as_prompt,
)
from ragguard.errors import (
    BudgetExceeded,
    CircuitOpen,
    EngineOverloaded,
    EngineRejected,
    EngineUnreachable,
    InvalidInput,
    PromptTooLong,
)
from ragguard.records import Usage

_Answer = TypeVar("_Answer", Samples, LabelProbs)

# Until the engine has told what prompts really cost: a careful guess for prose, and for a chat template.
_CHARACTERS_PER_TOKEN = 3.0
_TOKENS_PER_MESSAGE = 8


@dataclass(frozen=True, slots=True)
class Price:
    """What a million tokens cost, in whatever currency `money` is given in."""

    prompt: float
    output: float

    def of(self, prompt_tokens: float, output_tokens: float) -> float:
        """The price of so many tokens."""
        return (prompt_tokens * self.prompt + output_tokens * self.output) / 1e6


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent so far, or is left (None: not limited)."""

    requests: int | None
    tokens: int | None
    money: float | None


class Budget:
    """At most so many requests, tokens (prompt and output together) and money for this engine's model."""

    def __init__(
        self,
        engine: Engine,
        requests: int | None = None,
        tokens: int | None = None,
        money: float | None = None,
        price: Price | None = None,
    ) -> None:
        for name, limit in (("requests", requests), ("tokens", tokens), ("money", money)):
            if limit is not None and not limit >= 0:
                raise InvalidInput(name, limit, "0 or more, or None for no limit")
        if money is not None and price is None:
            raise InvalidInput("price", price, "Price(prompt=…, output=…) per million tokens, to limit money")
        self._engine, self._price = engine, price or Price(0.0, 0.0)
        self._limits = Spent(requests, tokens, money)
        self._lock = threading.Lock()
        self._spent = _Account()
        self._reserved = _Account()
        self._characters = self._counted = 0.0

    async def sample(
        self,
        prompts: Sequence[PromptLike],
        n: int = 10,
        max_tokens: int = 64,
        temperature: float = 1.0,
        seed: int | None = None,
        *,
        deadline: float | None = None,
        priority: int = 0,
    ) -> Samples:
        """`n` answers to each prompt."""
        return await self._spend(
            prompts,
            n * max_tokens,
            lambda asked: self._engine.sample(
                asked, n, max_tokens, temperature, seed, deadline=deadline, priority=priority
            ),
        )

    async def label_probs(
        self,
        prompts: Sequence[PromptLike],
        labels: Sequence[str],
        mode: LabelMode | None = None,
        deadline: float | None = None,
        priority: int = 0,
    ) -> LabelProbs:
        """The probability of each label as what follows each prompt."""
        return await self._spend(
            prompts,
            1,
            lambda asked: self._engine.label_probs(asked, labels, mode, deadline, priority),
        )

    async def info(self) -> EngineInfo:
        """What the wrapped engine is."""
        return await self._engine.info()

    async def aclose(self) -> None:
        """Closes the wrapped engine."""
        await self._engine.aclose()

    @property
    def spent(self) -> Spent:
        """What was spent so far; `money` by the given price."""
        with self._lock:
            return Spent(self._spent.requests, int(self._spent.tokens), self._spent.money)

    @property
    def left(self) -> Spent:
        """What may still be spent, calls under way taken off."""
        with self._lock:
            used = self._spent.plus(self._reserved)
        requests, tokens, money = self._limits.requests, self._limits.tokens, self._limits.money
        return Spent(
            None if requests is None else max(0, requests - used.requests),
            None if tokens is None else max(0, tokens - int(used.tokens)),
            None if money is None else max(0.0, money - used.money),
        )

    async def _spend(
        self,
        prompts: Sequence[PromptLike],
        output_tokens: int,
        ask: Callable[[Sequence[Prompt]], Awaitable[_Answer]],
    ) -> _Answer:
        asked = [as_prompt(prompt) for prompt in prompts]
        if not asked:
            return await ask(asked)
        characters = sum(len(message.content) for prompt in asked for message in prompt.messages)
        messages = sum(len(prompt.messages) for prompt in asked)
        reserved = self._reserve(characters, messages, output_tokens * len(asked))
        # What is charged if the call is broken off: the server may have worked for it.
        charged = _Account(1, reserved.prompt_tokens, 0.0, self._price.of(reserved.prompt_tokens, 0.0))
        try:
            answer = await ask(asked)
            charged = self._cost(answer.usage, reserved)
            self._learn(characters, messages, answer.usage)
        except (EngineUnreachable, EngineOverloaded, EngineRejected, PromptTooLong):
            charged = _Account(1)
            raise
        except (CircuitOpen, BudgetExceeded):
            charged = _Account()
            raise
        finally:
            with self._lock:
                self._reserved = self._reserved.minus(reserved)
                self._spent = self._spent.plus(charged)
        return answer

    def _reserve(self, characters: int, messages: int, output_tokens: int) -> _Account:
        with self._lock:
            per_token = self._characters / self._counted if self._counted else _CHARACTERS_PER_TOKEN
            prompt_tokens = characters / per_token + messages * _TOKENS_PER_MESSAGE
            want = _Account(1, prompt_tokens, output_tokens, self._price.of(prompt_tokens, output_tokens))
            total = self._spent.plus(self._reserved).plus(want)
            limits = self._limits
            for name, limit, used, need in (
                ("requests", limits.requests, total.requests, want.requests),
                ("tokens", limits.tokens, total.tokens, want.tokens),
                ("money", limits.money, total.money, want.money),
            ):
                if limit is not None and used > limit:
                    raise BudgetExceeded(
                        f"not sent: up to {need:,.6g} {name} are needed, and {used - need:,.6g} of {limit:,.6g} are "
                        f"spent or under way: raise the budget's `{name}`, or ask for less"
                    )
            self._reserved = self._reserved.plus(want)
            return want

    def _cost(self, usage: Usage, reserved: _Account) -> _Account:
        prompt_tokens: float = usage.prompt_tokens
        output_tokens: float = usage.output_tokens
        if not prompt_tokens and not output_tokens:
            prompt_tokens, output_tokens = reserved.prompt_tokens, reserved.output_tokens
        money = self._price.of(prompt_tokens, output_tokens)
        return _Account(max(1, usage.requests), prompt_tokens, output_tokens, money)

    def _learn(self, characters: int, messages: int, usage: Usage) -> None:
        """Takes the measure of this model's tokens from what the engine reports."""
        tokens = usage.prompt_tokens - messages * _TOKENS_PER_MESSAGE
        if tokens > 0 and not usage.cached:
            with self._lock:
                self._characters += characters
                self._counted += tokens


@dataclass(frozen=True, slots=True)
class _Account:
    requests: int = 0
    prompt_tokens: float = 0.0
    output_tokens: float = 0.0
    money: float = 0.0

    @property
    def tokens(self) -> float:
        return self.prompt_tokens + self.output_tokens

    def plus(self, other: _Account) -> _Account:
        return _Account(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.output_tokens + other.output_tokens,
            self.money + other.money,
        )

    def minus(self, other: _Account) -> _Account:
        return self.plus(_Account(-other.requests, -other.prompt_tokens, -other.output_tokens, -other.money))
