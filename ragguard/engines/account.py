"""The account of what may be spent: requests, tokens and money, for all engines that share it.

A call reserves the most that it can cost. The HTTP client counts each request before it is sent, and the tokens that
the server's reply reports. So retries, questions about the server and failed requests are counted, too, and calls
that run at the same time cannot overspend together.

The HTTP client finds the account of its call in a context variable, so that engines need not pass it on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypedDict

from ragguard.errors import BudgetExceeded, InvalidInput
from ragguard.records import Usage
from ragguard.runtime.arguments import LARGEST, number_between
from ragguard.runtime.per_process import PerProcess


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
    """The amounts that were spent so far, or that are left (None: no limit)."""

    requests: int | None
    tokens: int | None
    money: float | None


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a call: requests, and tokens of prompts and of answers."""

    requests: int = 0
    prompt_tokens: float = 0.0
    output_tokens: float = 0.0

    @property
    def tokens(self) -> float:
        """The tokens of prompts and answers together."""
        return self.prompt_tokens + self.output_tokens

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.output_tokens + other.output_tokens,
        )

    def __sub__(self, other: Cost) -> Cost:
        return self + Cost(-other.requests, -other.prompt_tokens, -other.output_tokens)

    def less(self, other: Cost) -> Cost:
        """Returns this cost less another one, with 0 in place of negative amounts."""
        return Cost(
            max(0, self.requests - other.requests),
            max(0.0, self.prompt_tokens - other.prompt_tokens),
            max(0.0, self.output_tokens - other.output_tokens),
        )


class Account:
    """Limits what engines may spend in all; may be shared between engines and threads.

    What a call may cost is reserved before it is sent, and a call that could go beyond is refused with
    `BudgetExceeded`.

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
        for name, limit in (("requests", requests), ("tokens", tokens), ("money", money)):
            good = isinstance(limit, int | float) and not isinstance(limit, bool) and limit >= 0
            if limit is not None and not good:
                raise InvalidInput(name, limit, "0 or more, or None for no limit")
        if not isinstance(price, Price | None) or (money is not None and price is None):
            raise InvalidInput("price", price, "Price(prompt=…, output=…) per million tokens, to limit money")
        self._price = price or Price(0.0, 0.0)
        self._limits = Spent(requests, tokens, money)
        self._spent = Cost()
        self._in_flight = PerProcess(_InFlight)

    @classmethod
    def of(cls, budget: Account | Limits | None) -> Account | None:
        """Returns the account for a `budget` argument; None where nothing is limited."""
        if budget is None or isinstance(budget, Account):
            return budget
        if not isinstance(budget, Mapping) or not budget.keys() <= Limits.__annotations__.keys():
            allowed = f"a mapping with some of {', '.join(Limits.__annotations__)}, or an Account"
            raise InvalidInput("budget", budget, allowed)
        return cls(**budget) if budget else None

    @property
    def limits_tokens(self) -> bool:
        """True where tokens or money are limited, and not only requests."""
        return self._limits.tokens is not None or self._limits.money is not None

    @property
    def spent(self) -> Spent:
        """The amounts that were spent so far; `money` by the given price."""
        with self._in_flight.get().lock:
            return Spent(self._spent.requests, int(self._spent.tokens), self._money(self._spent))

    @property
    def left(self) -> Spent:
        """The amounts that may still be spent, less those reserved for calls in flight."""
        in_flight = self._in_flight.get()
        with in_flight.lock:
            used = self._spent + in_flight.reserved
        requests, tokens, money = self._limits.requests, self._limits.tokens, self._limits.money
        return Spent(
            None if requests is None else max(0, requests - used.requests),
            None if tokens is None else max(0, tokens - int(used.tokens)),
            None if money is None else max(0.0, money - self._money(used)),
        )

    def refusal(self, want: Cost) -> str | None:
        """Returns the reason why a cost exceeds what is left, as text; None where it does not."""
        in_flight = self._in_flight.get()
        with in_flight.lock:
            return self._refusal(want, in_flight)

    @contextmanager
    def reserving(self, want: Cost) -> Iterator[Reservation]:
        """Reserves a cost while the block runs, and releases the part that was not spent."""
        in_flight = self._in_flight.get()
        with in_flight.lock:
            if refusal := self._refusal(want, in_flight):
                raise BudgetExceeded(refusal)
            in_flight.reserved += want
        reservation = Reservation(self, want)
        token = _reservation.set(reservation)
        try:
            yield reservation
        finally:
            _reservation.reset(token)
            with in_flight.lock:
                reservation.open = False
                in_flight.reserved -= want.less(reservation.drawn)

    def _spend(self, reservation: Reservation, cost: Cost, *, refuse: bool) -> None:
        """Counts a cost: first against the reservation, the rest against the unreserved amount."""
        in_flight = self._in_flight.get()
        with in_flight.lock:
            reserved = reservation.wanted.less(reservation.drawn) if reservation.open else Cost()
            beyond = cost.less(reserved)
            if refuse and (refusal := self._refusal(beyond, in_flight)):
                raise BudgetExceeded(refusal)
            self._spent += cost
            in_flight.reserved -= cost - beyond
            reservation.drawn += cost

    def _refusal(self, want: Cost, in_flight: _InFlight) -> str | None:
        total = self._spent + in_flight.reserved + want
        limits = self._limits
        for name, limit, used, need in (
            ("requests", limits.requests, total.requests, want.requests),
            ("tokens", limits.tokens, total.tokens, want.tokens),
            ("money", limits.money, self._money(total), self._money(want)),
        ):
            if limit is not None and need and used > limit:
                return (
                    f"not sent: up to {need:,.6g} {name} are needed, and {used - need:,.6g} of {limit:,.6g} are "
                    f"spent or in flight: raise the budget's `{name}`, or ask for less"
                )
        return None

    def _money(self, cost: Cost) -> float:
        return self._price.of(cost.prompt_tokens, cost.output_tokens)


class _InFlight:
    """The cost that is reserved for the calls of this process, under a lock of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reserved = Cost()


@dataclass(eq=False, slots=True)
class Reservation:
    """The cost that is reserved for one call, and the part that it has spent."""

    account: Account
    wanted: Cost
    drawn: Cost = Cost()
    open: bool = True
    """False once the call has ended; its later costs are counted against the unreserved amount."""

    def spend(self, cost: Cost, *, refuse: bool = False) -> None:
        """Counts a cost; with `refuse` raises BudgetExceeded where it is not left."""
        self.account._spend(self, cost, refuse=refuse)

    def spend_rest(self, cost: Cost) -> None:
        """Counts the part of a call's cost that is not counted yet."""
        self.spend(cost.less(self.drawn))


_reservation: ContextVar[Reservation | None] = ContextVar("ragguard_reservation", default=None)


def count_request() -> None:
    """Counts a request before it is sent, if its call has a budget; raises BudgetExceeded where none is left."""
    reservation = _reservation.get()
    if reservation is not None:
        reservation.spend(Cost(1), refuse=True)


def count_reply(usage: Usage) -> None:
    """Counts the tokens that a server's reply reports, if its call has a budget."""
    reservation = _reservation.get()
    if reservation is not None and (usage.prompt_tokens or usage.output_tokens):
        reservation.spend(Cost(0, usage.prompt_tokens, usage.output_tokens))
