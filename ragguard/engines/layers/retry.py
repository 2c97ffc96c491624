"""`Retry`, the layer that repeats requests if that may help, and stops asking a server that is down.

Both verbs only read, so every call is safe to repeat; only errors marked `retryable` are. Between
attempts it waits a random part of an exponentially growing time, or as long as the server asked for.
After several failures in a row the circuit opens: calls fail at once, until a pause has passed and a
single call, sent as a probe, comes back well.

A call may be many HTTP requests. Each is repeated by itself (`repeated`), so that a server that fails some of them
still answers the call; what an engine makes of the replies is repeated as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

from ragguard.engines.base import Engine, EngineInfo
from ragguard.engines.engine import Layer, layers_of, send_to
from ragguard.engines.requests import Reply, Request
from ragguard.errors import (
    CircuitOpen,
    EngineError,
    EngineOverloaded,
    EngineRejected,
    EngineTimeout,
    PromptTooLong,
)
from ragguard.runtime.arguments import number_between, whole_number
from ragguard.runtime.circuit_breaker import Attempt, CircuitBreaker, RetrySchedule
from ragguard.runtime.deadline import remaining
from ragguard.runtime.faults import NOTICES
from ragguard.runtime.limiter import sleep_outside

_Answer = TypeVar("_Answer")

_SILENCE = 1.0
"""The seconds without an answer after which failures in a row open the circuit."""
_SOONER, _OFTENER = 8, 3
"""The factors by which a failed request is repeated sooner, and oftener, while the server answers others."""
_UNANSWERED = (
    "an engine does not answer: {}. It is asked again, at longer and longer intervals, as long as a question may "
    "wait. To see what is wrong: ragguard doctor ADDRESS"
)


class Patience:
    """The schedule of repeated requests, and a circuit breaker over all calls. Times are in seconds.

    Args:
        attempts: How often one request is tried at most, 1 or more; three times as often while the server answers other
            requests. A refusal with `Retry-After` does not count.
        base: The longest wait before the second attempt; it doubles with each further one.
        cap: The longest wait before any attempt. A server's `Retry-After` is added.
        total: How long one request is repeated at most; a call's deadline ends it earlier.
        trip_after: After how many failures in a row, and a second without an answer, the circuit opens: calls then fail
            at once.
        pause: For how long the circuit stays open before one call tries the server again; it doubles while these tries
            fail, up to half a minute.
    """

    def __init__(
        self,
        attempts: int = 5,
        base: float = 0.25,
        cap: float = 15.0,
        total: float = 90.0,
        trip_after: int = 10,
        pause: float = 5.0,
    ) -> None:
        for name, value in (("attempts", attempts), ("trip_after", trip_after)):
            whole_number(name, value, 1)
        for name, seconds in (("base", base), ("cap", cap), ("total", total), ("pause", pause)):
            number_between(name, seconds, math.ulp(0.0), math.inf, "more than 0 seconds")
        self._schedule, self._total = RetrySchedule(attempts, base, cap, jitter=(0.0, 1.0)), total
        pauses = RetrySchedule(first=pause, longest=max(pause, 30.0), jitter=(1.0, 1.0))
        self.circuit = CircuitBreaker(trip_after, pauses, silence=min(_SILENCE, pause))
        self.latest_failure: tuple[float, EngineError] | None = None
        """The time (on the monotonic clock) and the error of the latest failed attempt that was followed by another."""

    async def persist(
        self,
        ask: Callable[[], Awaitable[_Answer]],
        deadline: float | None,
        *,
        proves: bool = True,
        within: Attempt | None = None,
    ) -> _Answer:
        """Returns what `ask` returns, called again while that may help. With `proves` a return closes the circuit.
        `within` is the attempt at a call that `ask` is one request of."""
        started = monotonic()
        until = started + self._total if deadline is None else min(deadline, started + self._total)
        number = asked_to_wait = 0
        while True:
            remaining(deadline, "a call")
            number += 1
            attempt, is_well = self.circuit.enter(within), False
            token = _call.set(_PatientCall(self, attempt))
            try:
                answer = await ask()
                is_well = proves
                return answer
            except EngineError as error:
                # A request of the call that was repeated is counted by itself.
                counted = within is None and error.repeated
                blamed = _blames_server(error, deadline is not None) and not counted
                # A refusal shows that the server works.
                is_well = isinstance(error, EngineRejected | PromptTooLong) and not blamed
                if blamed:
                    self.circuit.failed(attempt, str(error), error)
                    if self._schedule.attempts > 1:
                        NOTICES.warn(f"engine {id(self)}", _UNANSWERED.format(error))
                wait = self._wait(error, number - asked_to_wait, asked_to_wait)
                if wait is None or monotonic() + wait >= until:
                    if number == 1:
                        raise
                    spent = f"given up after {number} attempts in {monotonic() - started:.1f} s"
                    raise _given_up(error, spent) from error.__cause__
                # Without the traceback, which would keep the frames and prompts of this call alive.
                self.latest_failure = (monotonic(), copy(error).with_traceback(None))
                overloads = is_busy(error)
                asked_to_wait += isinstance(error, EngineOverloaded) and bool(error.retry_after)
            finally:
                _call.reset(token)
                if is_well:
                    self.circuit.succeeded()
                self.circuit.left(attempt)  # does nothing to an attempt that has ended
            await sleep_outside(wait, overloads=overloads)

    def _wait(self, error: EngineError, attempts: int, asked_to_wait: int) -> float | None:
        """Returns the seconds until the next attempt, or None when there shall be none."""
        if not error.retryable or error.repeated:
            return None
        if isinstance(error, EngineOverloaded) and error.retry_after:
            # Never earlier than asked, and not all at the same instant. A server that says when to come back is asked
            # as long as there is time.
            return self._schedule.wait(min(asked_to_wait + 1, 4)) + error.retry_after
        if not self.circuit.answers_others or (isinstance(error, EngineOverloaded) and error.status == 429):
            return self._schedule.after(attempts)
        most = _OFTENER * self._schedule.attempts if self._schedule.attempts > 1 else 1
        return None if attempts >= most else self._schedule.wait(attempts) / _SOONER


@dataclass(frozen=True, slots=True)
class _PatientCall:
    """The call that a task works for, by what repeats it."""

    patience: Patience
    attempt: Attempt


_call: ContextVar[_PatientCall | None] = ContextVar("ragguard_patient_call", default=None)


async def repeated(request: Callable[[], Awaitable[_Answer]], deadline: float | None) -> _Answer:
    """Returns the reply to one request of a call, which is repeated by itself if a layer repeats the call."""
    call = _call.get()
    if call is None:
        return await request()
    return await call.patience.persist(request, deadline, within=call.attempt)


class Retry(Layer):
    """Repeats requests that failed for a reason that may pass, with growing waits and a circuit breaker.

    Args:
        engine: The engine that the layer wraps.
        patience: The schedule and the circuit breaker. Several engines of one server may share one Patience. None:
            `Patience()`.
    """

    def __init__(self, engine: Engine, patience: Patience | None = None) -> None:
        super().__init__(engine)
        self.patience = patience or Patience()
        self._last: EngineInfo | None = None

    def send(self, request: Request) -> Coroutine[Any, Any, Reply]:
        """Sends the request, and repeats it as long as that may help."""
        return self.patience.persist(lambda: send_to(self._engine, request), request.deadline)

    async def info(self) -> EngineInfo:
        """Returns the description of the wrapped engine; while the circuit is open the last known one, so that
        cached answers can be used."""
        try:
            # The answer is mostly remembered: it must not close the circuit of a server that is down.
            self._last = await self.patience.persist(self._engine.info, None, proves=False)
        except CircuitOpen:
            if self._last is None:
                raise
        return self._last


def failure_since(engine: Engine, since: float) -> EngineError | None:
    """Returns why a call to `engine` that began at `since` (on the monotonic clock) may still wait: the error of the
    latest failed attempt since then that is repeated; None where there is none, or where no layer repeats calls."""
    for layer in layers_of(engine):
        if isinstance(layer, Retry) and layer.patience.latest_failure is not None:
            failed, error = layer.patience.latest_failure
            return error if failed >= since else None
    return None


def open_circuits(engines: Iterable[Engine]) -> list[CircuitBreaker]:
    """Returns the circuit breakers that are open around these engines: most calls would fail without being made."""
    layers = [layer for engine in engines for layer in layers_of(engine)]
    circuits = [layer.patience.circuit for layer in layers if isinstance(layer, Retry)]
    return [circuit for circuit in circuits if circuit.is_open]


def _given_up(error: EngineError, spent: str) -> EngineError:
    """Returns a copy of the error with the attempts in its text. Callers that shared a request share one error."""
    last = copy(error).with_traceback(error.__traceback__)
    last.args = (f"{error} ({spent})", *error.args[1:])
    last.repeated = True
    return last


def is_busy(error: EngineError) -> bool:
    """Returns whether a server refused a request since it has too much to do, and not for a fault of its own."""
    return isinstance(error, EngineOverloaded) and (
        error.retry_after is not None or error.status in (None, 408, 429, 503)
    )


def _blames_server(error: EngineError, hurried: bool) -> bool:
    """Returns whether a failure speaks against the server. A missed deadline of the caller's own does not, nor does a
    wait that the server asked for, nor another model at a server that answers."""
    if isinstance(error, EngineOverloaded):
        return error.retry_after is None
    if isinstance(error, EngineTimeout):
        return not hurried
    return error.retryable and not (isinstance(error, EngineRejected) and error.repeated)
