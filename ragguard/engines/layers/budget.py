"""`Account`, what may be spent on requests, tokens and money by all engines that share it; and `Budget`, its layer.

A call is refused once a limit is reached. The HTTP client counts each request before it is sent, and the tokens that
the server's reply reports, so retries, questions about the server and failed requests are counted, too. Requests never
go beyond their limit. What a call may cost in tokens and money is reserved before it is asked: a call that might go
beyond a limit, with those in flight, waits for these. So the last call alone may go beyond it.

The HTTP client finds the call that it works for in a context variable, so that engines need not pass it on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TypedDict

from ragguard.engines.base import Engine, EngineInfo
from ragguard.engines.engine import Layer, send_to
from ragguard.engines.requests import Reply, Request
from ragguard.errors import BudgetExceeded, InvalidInput
from ragguard.records import Usage
from ragguard.runtime.arguments import LARGEST, number_between
from ragguard.runtime.deadline import until
from ragguard.runtime.per_process import PerProcess

_LOOK_SECONDS = 0.02
"""The seconds between two looks at whether a call fits into what is left."""
_BYTES_A_TOKEN = 3
"""The least bytes of a prompt that are a token, about; most texts have four or five."""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a million tokens, in the currency in which `money` is given."""

    prompt: float
    """The price of a million prompt tokens."""
    output: float
    """The price of a million output tokens."""

    def __post_init__(self) -> None:
        for name, price in (("prompt", self.prompt), ("output", self.output)):
            number_between(name, price, 0, LARGEST, "money for a million tokens, 0 or more")

    def of(self, prompt_tokens: float, output_tokens: float) -> float:
        """Returns the price of a number of prompt tokens and output tokens."""
        return (prompt_tokens * self.prompt + output_tokens * self.output) / 1e6


class Limits(TypedDict, total=False):
    """The most that may be spent in total."""

    requests: int
    tokens: int
    money: float
    price: Price


@dataclass(frozen=True, slots=True)
class Spent:
    """The amounts that were spent so far."""

    requests: int
    tokens: int
    money: float


class Account:
    """Limits what engines may spend in all; may be shared between engines and threads.

    A call is refused with `BudgetExceeded` once a limit is reached. The last call may go beyond a limit of tokens or
    money.

    Args:
        requests: How many requests to a model, 0 or more. None: any number.
        tokens: How many tokens, prompt and output together, 0 or more. None: any number.
        money: How much money, in the currency of `price`, which must then be given. None: any amount.
        price: What a million tokens cost.
    """

    def __init__(
        self,
        requests: int | None = None,
        tokens: int | None = None,
        money: float | None = None,
        price: Price | None = None,
    ) -> None:
        self._limits = {"requests": requests, "tokens": tokens, "money": money}
        for name, limit in self._limits.items():
            if limit is not None:
                number_between(name, limit, 0, LARGEST, "0 or more, or None for no limit")
        if not isinstance(price, Price | None) or (money is not None and price is None):
            raise InvalidInput("price", price, "Price(prompt=…, output=…) per million tokens, to limit money")
        self._price = price or Price(0.0, 0.0)
        self._used = Usage()
        self._reserved: PerProcess[list[Usage]] = PerProcess(list)
        """The most that each call in flight may cost, about."""
        self._lock = PerProcess(threading.Lock)

    @classmethod
    def of(cls, budget: Account | Limits | None) -> Account | None:
        """Returns the account for a `budget` argument; None if nothing is limited."""
        if budget is None or isinstance(budget, Account):
            return budget
        if not isinstance(budget, Mapping) or not budget.keys() <= Limits.__annotations__.keys():
            allowed = f"a mapping with some of {', '.join(Limits.__annotations__)}, or an Account"
            raise InvalidInput("budget", budget, allowed)
        return cls(**budget) if budget else None

    @property
    def spent(self) -> Spent:
        """The amounts that were spent so far; `money` by the given price."""
        used = self._used
        money = self._price.of(used.prompt_tokens, used.output_tokens)
        return Spent(used.requests, used.prompt_tokens + used.output_tokens, money)

    @property
    def limits_tokens(self) -> bool:
        """True if tokens or money are limited."""
        return self._limits["tokens"] is not None or self._limits["money"] is not None

    @asynccontextmanager
    async def reserving(self, cost: Usage, deadline: float | None) -> AsyncIterator[None]:
        """Reserves what a call may cost while the block runs; waits for calls in flight as long as all together might
        go beyond a limit."""
        reserved = self._reserved.get()
        async with until(deadline, "a call that waited for what others spend of the budget"):
            while not self._reserve(cost, reserved):  # noqa: ASYNC110 - others may be on other loops
                await asyncio.sleep(_LOOK_SECONDS)
        try:
            yield
        finally:
            with self._lock.get():
                reserved.remove(cost)

    def _reserve(self, cost: Usage, reserved: list[Usage]) -> bool:
        """Reserves a cost if it fits, or if nothing else is reserved; returns whether it did."""
        with self._lock.get():
            total = sum(reserved, self._used + cost)
            amounts = {
                "tokens": total.prompt_tokens + total.output_tokens,
                "money": self._price.of(total.prompt_tokens, total.output_tokens),
            }
            fits = all(
                (limit := self._limits[name]) is None or amount <= limit for name, amount in amounts.items()
            )
            if fits or not reserved:
                reserved.append(cost)
                return True
        return False

    @contextmanager
    def calling(self, requests: int = 1) -> Iterator[CountedCall]:
        """Counts a call while the block runs; its first requests are counted at once. Raises BudgetExceeded if a limit
        is reached."""
        for _ in range(requests):
            self.count_request()
        call = CountedCall(self, requests, Usage(requests=requests))
        token = _call.set(call)
        try:
            yield call
        finally:
            _call.reset(token)

    def count_request(self) -> None:
        """Counts a request before it is sent; raises BudgetExceeded if a limit is reached."""
        with self._lock.get():
            spent = self.spent
            for name, limit in self._limits.items():
                amount = getattr(spent, name)
                if limit is not None and amount >= limit:
                    raise BudgetExceeded(
                        f"not sent: {amount:,.6g} of {limit:,.6g} {name} are spent: raise the budget's `{name}`, or "
                        "ask for less"
                    )
            self._used += Usage(requests=1)

    def count(self, usage: Usage) -> None:
        """Counts what was spent."""
        with self._lock.get():
            self._used += usage


@dataclass(eq=False, slots=True)
class CountedCall:
    """The amounts that were counted for one call."""

    account: Account
    in_advance: int
    """The requests that were counted and not sent yet."""
    usage: Usage = field(default_factory=Usage)

    def settle(self, usage: Usage, unreported: int) -> None:
        """Counts the part of a call's usage that is not counted yet: `unreported` tokens where it reports none."""
        prompt, output, known = usage.prompt_tokens, usage.output_tokens, self.usage
        left = Usage(
            requests=max(0, usage.requests - known.requests),
            prompt_tokens=max(0, (prompt if prompt or output else unreported) - known.prompt_tokens),
            output_tokens=max(0, output - known.output_tokens),
        )
        self.account.count(left)


_call: ContextVar[CountedCall | None] = ContextVar("ragguard_call", default=None)


def count_request() -> None:
    """Counts a request before it is sent, if its call has a budget; raises BudgetExceeded where a limit is reached."""
    call = _call.get()
    if call is not None and call.in_advance:
        call.in_advance -= 1
    elif call is not None:
        call.account.count_request()
        call.usage += Usage(requests=1)


def count_reply(usage: Usage) -> None:
    """Counts the tokens that a server's reply reports, if its call has a budget."""
    if (call := _call.get()) is not None:
        tokens = replace(usage, requests=0)
        call.usage += tokens
        call.account.count(tokens)


class Budget(Layer):
    """Counts what calls spend, and refuses them once a limit is reached. What an engine does not report is counted as
    one token for each byte of the prompts.

    Args:
        engine: The engine that the layer wraps.
        account: What may be spent; several engines may share it.
    """

    def __init__(self, engine: Engine, account: Account) -> None:
        super().__init__(engine)
        self.account = account

    async def send(self, request: Request) -> Reply:
        """Sends the request on, if no limit is reached."""
        outer = _call.get()
        if not self.account.limits_tokens or (outer is not None and outer.account is self.account):
            return await self._counted(request)
        info = await self.info()
        written = len(request.prompts) * request.written(info)
        size = sum(prompt.size for prompt in request.prompts)
        cost = Usage(prompt_tokens=size // _BYTES_A_TOKEN, output_tokens=written)
        async with self.account.reserving(cost, request.deadline):
            return await self._counted(request)

    async def _counted(self, request: Request) -> Reply:
        with self.account.calling() as call:
            reply = await send_to(self._engine, request)
            call.settle(reply.usage, sum(prompt.size for prompt in request.prompts))
            return reply

    async def info(self) -> EngineInfo:
        """Returns the description of the wrapped engine; the requests for it are counted."""
        with self.account.calling(0):
            return await self._engine.info()
