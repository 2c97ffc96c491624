"""Coalesce: calls that come within a few milliseconds become one batch.

Only calls of the same verb, parameters and priority merge, and only within one event loop. Each
caller keeps its own fate: its deadline, its cancellation, and its error when it was its prompt that
broke the batch. That merging changes no number is the engine's promise (see `base.Engine`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from ragguard.engines.base import (
    Engine,
    EngineInfo,
    LabelMode,
    LabelProbs,
    Prompt,
    PromptLike,
    Samples,
    as_labels,
    as_prompt,
)
from ragguard.engines.deadline import remaining, until
from ragguard.errors import CircuitOpen, Closed, EngineError, EngineTimeout, InvalidInput
from ragguard.records import Usage

# A rough guess is enough: it only bounds a batch.
_CHARACTERS_PER_TOKEN = 4


class Coalesce:
    """Merges the calls of `window_ms` into batches of at most so many prompts and (roughly) tokens."""

    def __init__(
        self, engine: Engine, window_ms: float = 3.0, max_prompts: int = 256, max_tokens: int = 131_072
    ) -> None:
        if not 0 <= window_ms <= 1000:
            raise InvalidInput("window_ms", window_ms, "0 to 1000")
        for name, value in (("max_prompts", max_prompts), ("max_tokens", max_tokens)):
            if value < 1:
                raise InvalidInput(name, value, "1 or more")
        self._engine = engine
        self._labels = _Merger[LabelProbs](engine, window_ms / 1000, max_prompts, max_tokens)
        self._draws = _Merger[Samples](engine, window_ms / 1000, max_prompts, max_tokens)

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
        return await self._draws.ask(_Draw(n, max_tokens, temperature, seed, priority), prompts, deadline)

    async def label_probs(
        self,
        prompts: Sequence[PromptLike],
        labels: Sequence[str],
        mode: LabelMode | None = None,
        deadline: float | None = None,
        priority: int = 0,
    ) -> LabelProbs:
        """The probability of each label as what follows each prompt."""
        return await self._labels.ask(_Labelling(as_labels(labels), mode, priority), prompts, deadline)

    async def info(self) -> EngineInfo:
        """What the wrapped engine is."""
        return await self._engine.info()

    async def aclose(self) -> None:
        """Refuses whoever still waits to be merged, and closes the wrapped engine."""
        self._labels.close()
        self._draws.close()
        await self._engine.aclose()


_Answer = TypeVar("_Answer", Samples, LabelProbs)


class _Question(Protocol[_Answer]):
    """What must be equal for two calls to merge; hashable."""

    @property
    def output_tokens(self) -> int: ...

    async def put(self, engine: Engine, prompts: Sequence[Prompt], deadline: float | None) -> _Answer: ...

    def part(self, answer: _Answer, first: int, last: int, usage: Usage) -> _Answer: ...


@dataclass(frozen=True, slots=True)
class _Labelling:
    labels: tuple[str, ...]
    mode: LabelMode | None
    priority: int
    output_tokens: int = 1

    async def put(self, engine: Engine, prompts: Sequence[Prompt], deadline: float | None) -> LabelProbs:
        return await engine.label_probs(prompts, self.labels, self.mode, deadline, self.priority)

    def part(self, answer: LabelProbs, first: int, last: int, usage: Usage) -> LabelProbs:
        bound = None if answer.bound is None else answer.bound[first:last]
        exact = answer.exact
        if bound is not None and answer.stderr is None:
            # Bounds are known value by value: a caller's rows may be exact where its neighbour's are not.
            exact = not bound.any()
        return replace(
            answer,
            p=answer.p[first:last].copy(),
            exact=exact,
            bound=bound,
            stderr=None if answer.stderr is None else answer.stderr[first:last],
            truncated=_between(answer.truncated, first, last),
            usage=usage,
        )


@dataclass(frozen=True, slots=True)
class _Draw:
    n: int
    max_tokens: int
    temperature: float
    seed: int | None
    priority: int

    @property
    def output_tokens(self) -> int:
        return self.n * self.max_tokens

    async def put(self, engine: Engine, prompts: Sequence[Prompt], deadline: float | None) -> Samples:
        return await engine.sample(
            prompts,
            self.n,
            self.max_tokens,
            self.temperature,
            self.seed,
            deadline=deadline,
            priority=self.priority,
        )

    def part(self, answer: Samples, first: int, last: int, usage: Usage) -> Samples:
        return Samples(answer.answers[first:last], usage, _between(answer.truncated, first, last))


@dataclass(eq=False, slots=True)
class _Caller(Generic[_Answer]):
    prompts: tuple[Prompt, ...]
    deadline: float | None
    answer: asyncio.Future[_Answer]


@dataclass(eq=False, slots=True)
class _Batch(Generic[_Answer]):
    question: _Question[_Answer]
    loop: asyncio.AbstractEventLoop
    callers: list[_Caller[_Answer]] = field(default_factory=list)
    prompts: int = 0
    tokens: int = 0
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None


class _Merger(Generic[_Answer]):
    """The batches of one verb."""

    def __init__(self, engine: Engine, window: float, max_prompts: int, max_tokens: int) -> None:
        self._engine, self._window = engine, window
        self._max_prompts, self._max_tokens = max_prompts, max_tokens
        # Keyed by loop: a batch belongs to one loop alone, so nothing here is shared between threads.
        self._open: dict[tuple[asyncio.AbstractEventLoop, _Question[_Answer]], _Batch[_Answer]] = {}
        self._closed = False

    async def ask(
        self, question: _Question[_Answer], prompts: Sequence[PromptLike], deadline: float | None
    ) -> _Answer:
        if self._closed:
            raise Closed("this engine was closed; connect again")
        remaining(deadline, f"a call of {len(prompts)} prompts")
        asked = tuple(as_prompt(prompt) for prompt in prompts)
        tokens = sum(_tokens(prompt) + question.output_tokens for prompt in asked)
        if not asked or len(asked) >= self._max_prompts or tokens >= self._max_tokens:
            return await question.put(self._engine, asked, deadline)
        batch = self._room(question, len(asked), tokens)
        caller = _Caller[_Answer](asked, deadline, batch.loop.create_future())
        batch.callers.append(caller)
        batch.prompts += len(asked)
        batch.tokens += tokens
        if batch.prompts == self._max_prompts or batch.tokens >= self._max_tokens:
            self._close_batch(batch)
        try:
            async with until(deadline, f"a merged call of {len(asked)} prompts"):
                return await caller.answer
        finally:
            self._leave(batch, caller)

    def _room(self, question: _Question[_Answer], prompts: int, tokens: int) -> _Batch[_Answer]:
        """The open batch if this much still goes in, else a new one."""
        loop = asyncio.get_running_loop()
        batch = self._open.get((loop, question))
        if batch is not None:
            if batch.prompts + prompts <= self._max_prompts and batch.tokens + tokens <= self._max_tokens:
                return batch
            self._close_batch(batch)
        batch = self._open[loop, question] = _Batch(question, loop)
        batch.timer = loop.call_later(self._window, self._close_batch, batch)
        return batch

    def _close_batch(self, batch: _Batch[_Answer]) -> None:
        """Lets nobody else in and sends it off, in a task of its own that no caller's cancellation reaches."""
        if batch.timer is not None:
            batch.timer.cancel()
        if self._open.get((batch.loop, batch.question)) is batch:
            del self._open[batch.loop, batch.question]
        if batch.callers:
            batch.task = batch.loop.create_task(self._send(batch))

    def _leave(self, batch: _Batch[_Answer], caller: _Caller[_Answer]) -> None:
        """A caller has its answer or has gone away. A batch that nobody waits for is not worth asking."""
        if caller.answer.done() and not caller.answer.cancelled():
            caller.answer.exception()
        else:
            caller.answer.cancel()
        batch.callers = [other for other in batch.callers if other is not caller]
        if batch.task is None:
            batch.prompts -= len(caller.prompts)
            batch.tokens -= sum(_tokens(p) + batch.question.output_tokens for p in caller.prompts)
            if not batch.callers:
                self._close_batch(batch)
        elif not batch.callers:
            batch.task.cancel()

    async def _send(self, batch: _Batch[_Answer]) -> None:
        callers = list(batch.callers)
        try:
            await self._send_together(batch.question, callers)
        finally:
            for caller in callers:
                # Only a cancelled task (the loop is being torn down) leaves someone without an answer.
                caller.answer.cancel()

    async def _send_together(self, question: _Question[_Answer], callers: list[_Caller[_Answer]]) -> None:
        prompts = [prompt for caller in callers for prompt in caller.prompts]
        deadlines = [caller.deadline for caller in callers]
        deadline = None if None in deadlines else max(d for d in deadlines if d is not None)
        try:
            answer = await question.put(self._engine, prompts, deadline)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the callers'
            if len(callers) > 1 and _may_be_one_prompt(error):
                await asyncio.gather(*(self._send_together(question, [caller]) for caller in callers))
                return
            for caller in callers:
                if not caller.answer.done():
                    caller.answer.set_exception(error)
            return
        last = 0
        for caller in callers:
            first, last = last, last + len(caller.prompts)
            usage = _share(answer.usage, first, last, len(prompts))
            if not caller.answer.done():
                caller.answer.set_result(question.part(answer, first, last, usage))

    def close(self) -> None:
        self._closed = True
        for batch in list(self._open.values()):
            batch.loop.call_soon_threadsafe(self._refuse, batch)

    def _refuse(self, batch: _Batch[_Answer]) -> None:
        for caller in batch.callers:
            if not caller.answer.done():
                caller.answer.set_exception(Closed("the engine was closed before this call was sent"))
        batch.callers = []
        self._close_batch(batch)


def _may_be_one_prompt(error: Exception) -> bool:
    """Whether asking the callers apart may help some of them: not when the server itself is the trouble."""
    if isinstance(error, CircuitOpen | EngineTimeout | Closed):
        return False
    return not (isinstance(error, EngineError) and error.retryable)


def _tokens(prompt: Prompt) -> int:
    return sum(len(message.content) for message in prompt.messages) // _CHARACTERS_PER_TOKEN + 1


def _between(truncated: dict[int, int], first: int, last: int) -> dict[int, int]:
    return {index - first: cut for index, cut in truncated.items() if first <= index < last}


def _share(usage: Usage, first: int, last: int, of: int) -> Usage:
    """What prompts first..last of so many cost. Whole numbers, and the shares add up to the whole."""

    def part(total: int) -> int:
        return total * last // of - total * first // of

    return Usage(
        requests=part(usage.requests),
        prompts=last - first,
        prompt_tokens=part(usage.prompt_tokens),
        output_tokens=part(usage.output_tokens),
        seconds=usage.seconds * (last - first) / of,
        cached=part(usage.cached),
    )
