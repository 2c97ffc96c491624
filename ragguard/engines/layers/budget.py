"""Budget: refuses what would overspend, before it is sent.

A call first reserves the most it can cost, as far as that is known, then settles what it did cost. So
concurrent calls cannot overspend together, and what the engine does not report is settled as reserved.
A server that takes one prompt a request costs as many requests as there are prompts; what its labels
cost, where it samples them, is learned from the first ones.
"""

from __future__ import annotations

import math
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
    as_prompts,
)
from ragguard.engines.deadline import until
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
            if limit is not None and not (isinstance(limit, int | float) and limit >= 0):
                raise InvalidInput(name, limit, "0 or more, or None for no limit")
        if not isinstance(price, Price | None) or (money is not None and price is None):
            raise InvalidInput("price", price, "Price(prompt=…, output=…) per million tokens, to limit money")
        self._engine, self._price = engine, price or Price(0.0, 0.0)
        self._limits = Spent(requests, tokens, money)
        self._lock = threading.Lock()
        self._spent = _Account()
        self._reserved = _Account()
        self._characters = self._counted = 0.0
        self._labels_of_one = _Account(1, 0.0, 1.0)

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
            (n, n * max_tokens),
            lambda asked: self._engine.sample(
                asked, n, max_tokens, temperature, seed, deadline=deadline, priority=priority
            ),
            deadline,
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
            None,
            lambda asked: self._engine.label_probs(asked, labels, mode, deadline, priority),
            deadline,
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
        drawn: tuple[int, int] | None,
        ask: Callable[[Sequence[Prompt]], Awaitable[_Answer]],
        deadline: float | None,
    ) -> _Answer:
        """`drawn`: the samples of one prompt and all their tokens; None: its labels are asked for."""
        asked = as_prompts(prompts)
        if not asked:
            return await ask(asked)
        async with until(deadline, "looking at the engine"):
            can = (await self._engine.info()).capabilities
        characters = sum(len(message.content) for prompt in asked for message in prompt.messages)
        messages = sum(len(prompt.messages) for prompt in asked)
        requests, output_tokens = self._of_one(drawn, can)
        reserved = self._reserve(
            characters, messages, 1 if "batch" in can else requests * len(asked), output_tokens * len(asked)
        )
        # What is charged if the call is broken off: the server may have worked for it.
        charged = _Account(1, reserved.prompt_tokens, 0.0, self._price.of(reserved.prompt_tokens, 0.0))
        try:
            answer = await ask(asked)
            charged = self._cost(answer.usage, reserved)
            self._learn(characters, messages, answer.usage)
            if drawn is None and "batch" not in can:
                self._learn_labels(len(asked), answer.usage)
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

    def _of_one(self, drawn: tuple[int, int] | None, can: frozenset[str]) -> tuple[int, float]:
        """The requests and output tokens of one prompt that is asked by itself."""
        if drawn is None:
            return self._labels_of_one.requests, 1 if "batch" in can else self._labels_of_one.output_tokens
        n, tokens = drawn
        return 1 if "n_samples" in can else n, tokens

    def _reserve(self, characters: int, messages: int, requests: int, output_tokens: float) -> _Account:
        with self._lock:
            per_token = self._characters / self._counted if self._counted else _CHARACTERS_PER_TOKEN
            prompt_tokens = characters / per_token + messages * _TOKENS_PER_MESSAGE
            want = _Account(
                requests, prompt_tokens, output_tokens, self._price.of(prompt_tokens, output_tokens)
            )
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

    def _learn_labels(self, prompts: int, usage: Usage) -> None:
        """Remembers the most that a prompt's labels have cost."""
        with self._lock:
            most = self._labels_of_one
            self._labels_of_one = _Account(
                max(most.requests, math.ceil(usage.requests / prompts)),
                0.0,
                max(most.output_tokens, usage.output_tokens / prompts),
            )


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
