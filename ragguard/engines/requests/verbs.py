"""The two verbs of an engine, as methods that make a request and send it.

An engine of a user's own implements the verbs of `base.Engine`. The engines and layers of the package implement `send`
instead, and inherit the verbs from here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from ragguard.engines.base import (
    Engine,
    EngineInfo,
    LabelMode,
    LabelProbs,
    PromptLike,
    Samples,
    as_labels,
    as_prompts,
    check_mode,
    check_sampling,
)
from ragguard.engines.requests.base import R, Request
from ragguard.engines.requests.draws import DrawRequest
from ragguard.engines.requests.labels import LabelRequest
from ragguard.runtime.deadline import until
from ragguard.runtime.event_loop import running_loop


class Verbs(ABC):
    """An engine that answers requests: each of the two verbs makes one and sends it."""

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
        """Draws `n` answers to each prompt."""
        running_loop("engine.sample()")
        check_sampling(n, max_tokens, temperature)
        asked = tuple(as_prompts(prompts))
        return await self.send(
            DrawRequest(asked, n, max_tokens, temperature, seed=seed, deadline=deadline, priority=priority)
        )

    async def label_probs(
        self,
        prompts: Sequence[PromptLike],
        labels: Sequence[str],
        mode: LabelMode | None = None,
        deadline: float | None = None,
        priority: int = 0,
    ) -> LabelProbs:
        """Returns the probability of each label as what follows each prompt."""
        running_loop("engine.label_probs()")
        names = as_labels(labels)
        check_mode(mode)
        return await self.send(
            LabelRequest(tuple(as_prompts(prompts)), names, mode, deadline, priority=priority)
        )

    @abstractmethod
    async def send(self, request: Request[R]) -> R:
        """Answers a request."""


class Layer(Verbs):
    """An engine around an engine. A kind of layer overrides `send`, and what else it changes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def wrapped(self) -> Engine:
        """The engine that the layer wraps; it may be a layer, too."""
        return self._engine

    async def send(self, request: Request[R]) -> R:
        """Sends the request to the wrapped engine."""
        return await put(self._engine, request)

    async def info(self) -> EngineInfo:
        """Returns the description of the wrapped engine."""
        return await self._engine.info()

    async def info_within(self, deadline: float | None) -> EngineInfo:
        """Returns `info()`, for which a server may have to be asked first; raises EngineTimeout at the deadline."""
        async with until(deadline, "looking at the engine"):
            return await self.info()

    async def aclose(self) -> None:
        """Closes the wrapped engine."""
        await self._engine.aclose()


def put(engine: Engine, request: Request[R]) -> Coroutine[Any, Any, R]:
    """Sends a request to an engine of the package; calls the verb of an engine from elsewhere."""
    return engine.send(request) if isinstance(engine, Verbs) else request.ask(engine)


def layers_of(engine: Engine) -> Iterator[Layer]:
    """Yields the layers around an engine, the outermost first."""
    while isinstance(engine, Layer):
        yield engine
        engine = engine.wrapped
