"""The base of ragguard's own engines: a verb makes a request, layers send it on, and the engine's model answers it.

An engine of a user's own implements the verbs of `base.Engine`. The engines and layers of the package implement `send`
instead, and inherit the verbs from here.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, Literal, Protocol, TypeVar, get_args
from weakref import WeakKeyDictionary

from ragguard.engines.base import (
    Continuation,
    Continuations,
    Engine,
    EngineInfo,
    LabelMode,
    LabelProbs,
    PromptLike,
    Samples,
    as_continued,
    as_labels,
    as_prompts,
)
from ragguard.engines.entailment import Entailments, EntailRequest, Pair
from ragguard.engines.labels import LabelRequest
from ragguard.engines.requests import ContinuationRequest, DrawRequest, Reply, Request
from ragguard.errors import EngineRejected, EngineUnreachable, InvalidInput
from ragguard.runtime.arguments import LARGEST, number_between, one_of, whole_number
from ragguard.runtime.deadline import until
from ragguard.runtime.per_process import PerProcess

T = TypeVar("T")

Only = Literal["", "judges", "ranks", "compares"]
"""`judges`: answers typed questions. `ranks`: judges the relevance of passages, by scores that are no probabilities.
`compares`: compares answers, which no language model does without prompts (`EngineEntailer`). Empty: reads."""


class Verbs(ABC):
    """An engine that answers requests: each of the four verbs makes one and sends it."""

    only: Only = ""
    """The one thing that the model does; empty for one that reads in the agent's place."""

    def __init_subclass__(cls) -> None:
        """Refuses a kind of engine that overrides a verb: layers send requests, and would never call it."""
        if overridden := vars(cls).keys() & {"sample", "label_probs", "continuations", "entail"}:
            raise TypeError(
                f"{cls.__name__} overrides {', '.join(overridden)}: override `send`, or wrap the engine"
            )

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
        whole_number("n", n, 1)
        whole_number("max_tokens", max_tokens, 1)
        number_between("temperature", temperature, 0, LARGEST, "0 (greedy) or more")
        asked = tuple(as_prompts(prompts))
        request = DrawRequest(
            asked, n, max_tokens, temperature, seed=seed, deadline=deadline, priority=priority
        )
        return request.answer(await self.send(request) if asked else Reply(()))

    async def label_probs(
        self,
        prompts: Sequence[PromptLike],
        labels: Sequence[str],
        mode: LabelMode | None = None,
        deadline: float | None = None,
        priority: int = 0,
    ) -> LabelProbs:
        """Returns the probability of each label as what follows each prompt."""
        names = as_labels(labels)
        if mode is not None:
            one_of("mode", mode, get_args(LabelMode))
        asked = tuple(as_prompts(prompts))
        request = LabelRequest(asked, names, mode, deadline=deadline, priority=priority)
        return request.answer(await self.send(request) if asked else Reply(()))

    async def continuations(
        self,
        prompts: Sequence[PromptLike],
        texts: Sequence[Sequence[str]],
        deadline: float | None = None,
        priority: int = 0,
    ) -> Continuations:
        """Returns the log-probabilities of given texts behind each prompt: `texts[i]` are those of `prompts[i]`.

        Raises EngineRejected where the model's server does not show them.
        """
        asked = as_continued(prompts, texts)
        flat = tuple(prompt for row in asked for prompt in row)
        request = ContinuationRequest(flat, deadline=deadline, priority=priority)
        reply = await self.send(request) if flat else Reply(())
        values, rows, cuts = iter(reply.values), list[list[Continuation]](), dict[int, int]()
        for index, row in enumerate(asked):
            own = [(prompt.text, *next(values)) for prompt in row]
            rows.append([Continuation(text, logprobs, end) for text, logprobs, end, _ in own])
            if cut := max((cut for *_, cut in own), default=0):
                cuts[index] = cut
        return Continuations(rows, reply.usage, cuts)

    async def entail(
        self, pairs: Sequence[Pair], *, deadline: float | None = None, priority: int = 0
    ) -> Entailments:
        """Returns how the answers of each pair are related. Each different pair is asked once, and not at all if its
        answers are the same words.

        Raises EngineRejected where the model compares no answers.
        """
        differing = tuple(dict.fromkeys(pair for pair in pairs if not pair.is_equal))
        request = EntailRequest(differing, deadline=deadline, priority=priority)
        return request.answer(await self.send(request) if differing else Reply(()), pairs)

    @abstractmethod
    def send(self, request: Request) -> Coroutine[Any, Any, Reply]:
        """Answers a request about at least one prompt, or pair of answers."""


class Layer(Verbs):
    """An engine around an engine. A kind of layer overrides `send`, and what else it changes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def wrapped(self) -> Engine:
        """The engine that the layer wraps; it may be a layer, too."""
        return self._engine

    def send(self, request: Request) -> Coroutine[Any, Any, Reply]:
        """Sends the request to the wrapped engine."""
        return send_to(self.wrapped, request)

    def info(self) -> Coroutine[Any, Any, EngineInfo]:
        """Returns the description of the wrapped engine."""
        return self.wrapped.info()

    async def info_within(self, deadline: float | None) -> EngineInfo:
        """Returns `info()`, for which a server may have to be asked first; raises EngineTimeout at the deadline."""
        async with until(deadline, "looking at the engine"):
            return await self.info()

    async def aclose(self) -> None:
        """Closes the wrapped engine."""
        await self.wrapped.aclose()


def send_to(engine: Engine, request: Request) -> Coroutine[Any, Any, Reply]:
    """Sends a request to an engine of the package; calls the verb of an engine from elsewhere."""
    return engine.send(request) if isinstance(engine, Verbs) else request.ask(engine)


class ConnectedEngine(Layer):
    """The engine that `connect` returns: makes its layers anew in each process, so that a forked child has connections,
    locks and a cache of its own. Layers that are stacked by hand must be made in the process that uses them.

    Args:
        make: Makes the layers around an engine.
        later: True to make them when the engine is first asked; each call then raises what `make` raises.
    """

    def __init__(self, make: Callable[[], Engine], *, later: bool = False) -> None:
        self._layers, self._later = PerProcess(make), later
        if not later:
            self._layers.get()

    @property
    def wrapped(self) -> Engine:
        """The outermost layer of this process."""
        return self._layers.get()

    @property
    def is_later(self) -> bool:
        """True where the layers are made when the engine is first asked, which has not happened yet."""
        return self._later and self._layers.made is None

    async def aclose(self) -> None:
        """Closes the layers, if there are any."""
        if not self.is_later:
            await super().aclose()


def layers_of(engine: Engine) -> Iterator[Layer]:
    """Yields the layers around an engine, the outermost first; none of an engine that is made later."""
    while isinstance(engine, Layer) and not (isinstance(engine, ConnectedEngine) and engine.is_later):
        yield engine
        engine = engine.wrapped


def only_of(engine: Engine) -> Only:
    """Returns what the model behind an engine does, if it cannot read."""
    wrapped = (engine, *(layer.wrapped for layer in layers_of(engine)))
    return next((inner.only for inner in wrapped if isinstance(inner, Verbs) and inner.only), "")


def check_reads(argument: str, engine: Engine) -> None:
    """Raises InvalidInput for an engine that only judges, in the place of the one that reads."""
    if only_of(engine) in ("judges", "ranks"):
        raise InvalidInput(
            argument,
            engine,
            "a model that reads; a decision model or a reranker only judges: give it as `judge=` beside one",
        )


class FoundModel(Protocol):
    """A model whose properties are known."""

    @property
    def info(self) -> EngineInfo:
        """The description of the model."""
        ...

    async def answer(self, request: Request) -> Reply:
        """Answers a request about some prompts; raises EngineRejected for a kind that the model cannot answer. The
        usage has neither prompts nor seconds: the engine counts them."""
        ...


class ModelEngine(Verbs):
    """An engine on a model. A kind of it overrides `look` and `aclose`."""

    def __init__(self) -> None:
        self._lazy_model = Lazy(self.look)

    @abstractmethod
    async def look(self) -> FoundModel:
        """Finds out what the model is."""

    async def send(self, request: Request) -> Reply:
        """Answers a request by the model."""
        compares = self.only == "compares"
        if isinstance(request, EntailRequest) != compares:
            raise EngineRejected(
                f"{type(self).__name__} only compares answers: give it as `entailer=`"
                if compares
                else f"{type(self).__name__} compares answers only through prompts: use EngineEntailer(engine)"
            )
        model, began = await self.model(request.deadline), time.monotonic()
        try:
            reply = await model.answer(request)
            usage = replace(reply.usage, prompts=len(request.prompts), seconds=time.monotonic() - began)
            return replace(reply, usage=usage)
        except (EngineUnreachable, EngineRejected) as error:
            # A server may come back as another one, or has come back already, unseen between two calls.
            if isinstance(error, EngineUnreachable) or error.status == 404:
                self._lazy_model.forget()
            raise

    def model(self, deadline: float | None = None) -> Coroutine[Any, Any, FoundModel]:
        """Returns the model; finds out what it is the first time."""
        return self._lazy_model.get(deadline)

    async def info(self) -> EngineInfo:
        """Returns the description of the model; finds out what it is the first time."""
        return (await self.model()).info

    @abstractmethod
    async def aclose(self) -> None:
        """Releases connections, threads and memory. Safe to call twice."""


class Lazy(Generic[T]):
    """A value that a coroutine function finds when it is first needed.

    Callers on one event loop share one attempt. A failure is not remembered, and one caller's cancellation or
    deadline does not affect the others. Two event loops may each make an attempt.
    """

    def __init__(self, find: Callable[[], Awaitable[T]]) -> None:
        self._find = find
        self._value: list[T] = []
        self._attempts: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[T]] = WeakKeyDictionary()

    async def get(self, deadline: float | None = None) -> T:
        """Returns the value; finds it now if it is not known yet."""
        if self._value:
            return self._value[0]
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
        self._value.clear()

    async def _attempt(self) -> T:
        value = await self._find()
        self._value[:] = [value]
        return value
