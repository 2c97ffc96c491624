"""Engines that ask a model themselves: at first use they find out what the model is, then the model answers
requests."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from ragguard.engines.base import EngineInfo, LabelProbs, Prompt, Samples
from ragguard.engines.requests.base import R, Request
from ragguard.engines.requests.draws import DrawRequest
from ragguard.engines.requests.labels import LabelRequest
from ragguard.engines.requests.verbs import Verbs
from ragguard.errors import EngineRejected, EngineUnreachable
from ragguard.runtime.deadline import until

T = TypeVar("T")


class FoundModel(Protocol):
    """A model whose properties are known, with one method for each kind of request."""

    @property
    def info(self) -> EngineInfo:
        """The description of the model."""
        ...

    async def labels(self, request: LabelRequest) -> LabelProbs:
        """Returns the probability of each label as what follows each prompt."""
        ...

    async def draws(self, request: DrawRequest) -> Samples:
        """Draws answers to each prompt."""
        ...

    async def count_tokens(self, prompts: Sequence[Prompt], deadline: float | None = None) -> list[int]:
        """Returns the tokens of each prompt, its chat template included; the most that they can be where the model does
        not tell."""
        ...


M = TypeVar("M", bound=FoundModel)


class ModelEngine(Verbs, ABC, Generic[M]):
    """An engine on a model. A kind of it overrides `look` and `aclose`."""

    def __init__(self) -> None:
        self._found = Lazy(self.look)

    @abstractmethod
    async def look(self) -> M:
        """Finds out what the model is."""

    async def send(self, request: Request[R]) -> R:
        """Answers a request; a request about no prompts is answered without the model."""
        if not request.prompts:
            return request.empty()
        model = await self.found(request.deadline)
        try:
            if isinstance(request, LabelRequest):
                return cast(R, await model.labels(request))
            assert isinstance(request, DrawRequest)
            return cast(R, await model.draws(request))
        except EngineUnreachable:
            # A server may come back as another one.
            self._found.forget()
            raise
        except EngineRejected as error:
            # Or it has come back already, unseen between two calls.
            if error.status == 404:
                self._found.forget()
            raise

    async def found(self, deadline: float | None = None) -> M:
        """Returns the model; finds out what it is the first time."""
        return await self._found.get(deadline)

    async def count_tokens(self, prompts: Sequence[Prompt], deadline: float | None = None) -> list[int]:
        """Returns the tokens of each prompt, its chat template included; may be a request for each."""
        return await (await self.found(deadline)).count_tokens(prompts, deadline)

    async def info(self) -> EngineInfo:
        """Returns the description of the model; finds out what it is the first time."""
        return (await self.found()).info


class Lazy(Generic[T]):
    """A value that a coroutine function finds when it is first needed.

    Callers on one event loop share one attempt. A failure is not remembered, and one caller's cancellation or
    deadline does not affect the others. Two event loops may each make an attempt.
    """

    def __init__(self, find: Callable[[], Awaitable[T]]) -> None:
        self._find = find
        self._found: list[T] = []
        self._attempts: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[T]] = WeakKeyDictionary()

    async def get(self, deadline: float | None = None) -> T:
        """Returns the value; finds it now if it is not known yet."""
        if self._found:
            return self._found[0]
        loop = asyncio.get_running_loop()
        attempt = self._attempts.get(loop)
        if attempt is None or attempt.done():
            attempt = self._attempts[loop] = loop.create_task(self._attempt())
            # All callers may have been cancelled; the error of their attempt then interests nobody.
            attempt.add_done_callback(lambda task: task.cancelled() or task.exception())
        async with until(deadline, "finding out what the engine is"):
            return await asyncio.shield(attempt)

    def forget(self) -> None:
        """Forgets the value, so that the next call finds it anew."""
        self._found.clear()

    async def _attempt(self) -> T:
        value = await self._find()
        self._found[:] = [value]
        return value
