"""Coalesce: calls that come within a few milliseconds become one batch.

Only calls of the same verb, parameters and priority merge, and only within one event loop. Each
caller keeps its own fate: its deadline, its cancellation, and its error when it was its prompt that
broke the batch. That merging changes no number is the engine's promise (see `base.Engine`).

Calls for different labels merge, too, where a label's probability does not hang on the labels it is
asked with: all labels are then asked of all prompts, and each caller gets its own. So a guard's two
verdicts are one request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

import numpy as np

from ragguard.engines.base import (
    Engine,
    EngineInfo,
    LabelMode,
    LabelProbs,
    Prompt,
    PromptLike,
    Samples,
    as_labels,
    as_prompts,
)
from ragguard.engines.deadline import remaining, until
from ragguard.errors import (
    CircuitOpen,
    Closed,
    EngineError,
    EngineProtocolError,
    EngineTimeout,
    InvalidInput,
)
from ragguard.records import Usage

# A rough guess is enough: it only bounds a batch.
_CHARACTERS_PER_TOKEN = 4
_MOST_LABELS = 16
"""In one batch: each prompt is answered for every one of them."""


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
        mixes = self._labels.mixes and mode != "sequence" and await self._any_labels(mode, deadline)
        return await self._labels.ask(_Labelling(as_labels(labels), mode, priority, mixes), prompts, deadline)

    async def info(self) -> EngineInfo:
        """What the wrapped engine is."""
        return await self._engine.info()

    async def aclose(self) -> None:
        """Refuses whoever still waits to be merged, and closes the wrapped engine."""
        self._labels.close()
        self._draws.close()
        await self._engine.aclose()

    async def _any_labels(self, mode: LabelMode | None, deadline: float | None) -> bool:
        """Whether more labels cost the engine nothing and change no number: one token tells all of them."""
        async with until(deadline, "looking at the engine"):
            info = await self._engine.info()
        return (mode or info.mode) == "first_token" and "exact_labels" in info.capabilities


_Answer = TypeVar("_Answer", Samples, LabelProbs)


class _Question(Protocol[_Answer]):
    """What is asked of a caller's prompts."""

    @property
    def kind(self) -> Hashable:
        """What must be equal for two calls to merge."""
        ...

    @property
    def labels(self) -> tuple[str, ...]: ...

    @property
    def output_tokens(self) -> int: ...

    def asking(self, labels: tuple[str, ...]) -> _Question[_Answer]:
        """The same for these labels."""
        ...

    async def put(self, engine: Engine, prompts: Sequence[Prompt], deadline: float | None) -> _Answer: ...

    def part(self, answer: _Answer, asked: tuple[str, ...], first: int, last: int, usage: Usage) -> _Answer:
        """The share of prompts first..last of an answer for the labels that were asked."""
        ...

    def holds_together(self, answer: _Answer) -> bool:
        """Whether the answer is the one that each of several callers would have got alone."""
        ...


@dataclass(frozen=True, slots=True)
class _Labelling:
    labels: tuple[str, ...]
    mode: LabelMode | None
    priority: int
    mixes: bool
    """Whether it may be asked together with other labels."""
    output_tokens: int = 1

    @property
    def kind(self) -> Hashable:
        return self.mode, self.priority, None if self.mixes else self.labels

    def asking(self, labels: tuple[str, ...]) -> _Labelling:
        return replace(self, labels=labels)

    async def put(self, engine: Engine, prompts: Sequence[Prompt], deadline: float | None) -> LabelProbs:
        answer = await engine.label_probs(prompts, self.labels, self.mode, deadline, self.priority)
        if np.shape(answer.p) != (len(prompts), len(self.labels)):
            raise EngineProtocolError(
                f"{len(prompts)} prompts with {len(self.labels)} labels were asked; "
                f"the engine gave numbers of shape {np.shape(answer.p)}"
            )
        return answer

    def holds_together(self, answer: LabelProbs) -> bool:
        # Labels that begin alike are told apart by their whole sequences: others than these did not ask for that.
        return answer.mode == "first_token"

    def part(
        self, answer: LabelProbs, asked: tuple[str, ...], first: int, last: int, usage: Usage
    ) -> LabelProbs:
        columns = [asked.index(label) for label in self.labels]
        bound = None if answer.bound is None else answer.bound[first:last, columns]
        exact = answer.exact
        if bound is not None and answer.stderr is None:
            # Bounds are known value by value: a caller's rows may be exact where its neighbour's are not.
            exact = not bound.any()
        return replace(
            answer,
            p=answer.p[first:last, columns],
            exact=exact,
            bound=bound,
            stderr=None if answer.stderr is None else answer.stderr[first:last, columns],
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
    labels: tuple[str, ...] = ()

    @property
    def kind(self) -> Hashable:
        return self

    @property
    def output_tokens(self) -> int:
        return self.n * self.max_tokens

    def asking(self, labels: tuple[str, ...]) -> _Draw:
        return self

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

    def holds_together(self, answer: Samples) -> bool:
        return True

    def part(self, answer: Samples, asked: tuple[str, ...], first: int, last: int, usage: Usage) -> Samples:
        return Samples(answer.answers[first:last], usage, _between(answer.truncated, first, last))


@dataclass(eq=False, slots=True)
class _Caller(Generic[_Answer]):
    question: _Question[_Answer]
    prompts: tuple[Prompt, ...]
    deadline: float | None
    answer: asyncio.Future[_Answer]


@dataclass(eq=False, slots=True)
class _Batch(Generic[_Answer]):
    question: _Question[_Answer]
    """With the labels of all callers."""
    loop: asyncio.AbstractEventLoop
    callers: list[_Caller[_Answer]] = field(default_factory=list)
    prompts: int = 0
    tokens: int = 0
    timer: asyncio.TimerHandle | None = None
    sent: bool = False
    task: asyncio.Task[None] | None = None
    """While it is under way."""


class _Merger(Generic[_Answer]):
    """The batches of one verb."""

    def __init__(self, engine: Engine, window: float, max_prompts: int, max_tokens: int) -> None:
        self._engine, self._window = engine, window
        self._max_prompts, self._max_tokens = max_prompts, max_tokens
        # Keyed by loop: a batch belongs to one loop alone, so nothing here is shared between threads.
        self._open: dict[tuple[asyncio.AbstractEventLoop, Hashable], _Batch[_Answer]] = {}
        self.mixes = True
        """Whether calls for different labels may merge: until an engine shows that it minds."""
        self._closed = False

    async def ask(
        self, question: _Question[_Answer], prompts: Sequence[PromptLike], deadline: float | None
    ) -> _Answer:
        if self._closed:
            raise Closed("this engine was closed; connect again")
        remaining(deadline, f"a call of {len(prompts)} prompts")
        asked = tuple(as_prompts(prompts))
        tokens = sum(_tokens(prompt) + question.output_tokens for prompt in asked)
        if not asked or len(asked) >= self._max_prompts or tokens >= self._max_tokens:
            return await question.put(self._engine, asked, deadline)
        batch = self._room(question, len(asked), tokens)
        caller = _Caller[_Answer](question, asked, deadline, batch.loop.create_future())
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
            del caller  # it knows the answer: an error that knows this frame

    def _room(self, question: _Question[_Answer], prompts: int, tokens: int) -> _Batch[_Answer]:
        """The open batch if this much still goes in, else a new one."""
        loop = asyncio.get_running_loop()
        batch = self._open.get((loop, question.kind))
        if batch is not None:
            labels = tuple(dict.fromkeys(batch.question.labels + question.labels))
            fits = batch.prompts + prompts <= self._max_prompts and batch.tokens + tokens <= self._max_tokens
            if fits and (labels == batch.question.labels or len(labels) <= _MOST_LABELS):
                batch.question = batch.question.asking(labels)
                return batch
            self._close_batch(batch)
        batch = self._open[loop, question.kind] = _Batch(question, loop)
        batch.timer = loop.call_later(self._window, self._close_batch, batch)
        return batch

    def _close_batch(self, batch: _Batch[_Answer]) -> None:
        """Lets nobody else in and sends it off, in a task of its own that no caller's cancellation reaches."""
        if batch.timer is not None:
            batch.timer.cancel()
        if self._open.get((batch.loop, batch.question.kind)) is batch:
            del self._open[batch.loop, batch.question.kind]
        if batch.callers:
            batch.sent, batch.task = True, batch.loop.create_task(self._send(batch))

    def _leave(self, batch: _Batch[_Answer], caller: _Caller[_Answer]) -> None:
        """A caller has its answer or has gone away. A batch that nobody waits for is not worth asking."""
        if caller.answer.done() and not caller.answer.cancelled():
            caller.answer.exception()
        else:
            caller.answer.cancel()
        batch.callers = [other for other in batch.callers if other is not caller]
        if not batch.sent:
            batch.prompts -= len(caller.prompts)
            batch.tokens -= sum(_tokens(p) + caller.question.output_tokens for p in caller.prompts)
            if not batch.callers:
                self._close_batch(batch)
        elif not batch.callers and batch.task is not None:
            batch.task.cancel()

    async def _send(self, batch: _Batch[_Answer]) -> None:
        callers = list(batch.callers)
        try:
            await self._send_together(batch.question, callers)
        finally:
            for caller in callers:
                # Only a cancelled task (the loop is being torn down) leaves someone without an answer.
                caller.answer.cancel()
            batch.task = None

    async def _send_together(self, question: _Question[_Answer], callers: list[_Caller[_Answer]]) -> None:
        prompts = [prompt for caller in callers for prompt in caller.prompts]
        deadlines = [caller.deadline for caller in callers]
        deadline = None if None in deadlines else max(d for d in deadlines if d is not None)
        answer = await self._put(question, prompts, deadline)
        if isinstance(answer, Exception):
            if len(callers) > 1 and _may_be_one_prompt(answer):
                await self._send_apart(callers)
                return
            for caller in callers:
                if not caller.answer.done():
                    caller.answer.set_exception(answer)
            return
        if any(caller.question != question for caller in callers) and not question.holds_together(answer):
            self.mixes = False
            await self._send_apart(callers)
            return
        last = 0
        for caller in callers:
            first, last = last, last + len(caller.prompts)
            usage = _share(answer.usage, first, last, len(prompts))
            if not caller.answer.done():
                caller.answer.set_result(caller.question.part(answer, question.labels, first, last, usage))

    async def _put(
        self, question: _Question[_Answer], prompts: Sequence[Prompt], deadline: float | None
    ) -> _Answer | Exception:
        """The answer, or the error as a value: whatever it is, it is the callers', whom its frames must not know."""
        try:
            return await question.put(self._engine, prompts, deadline)
        except Exception as error:  # noqa: BLE001 - as above
            return error

    async def _send_apart(self, callers: list[_Caller[_Answer]]) -> None:
        await asyncio.gather(*(self._send_together(caller.question, [caller]) for caller in callers))

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
    if isinstance(error, CircuitOpen | EngineTimeout | Closed | OSError):
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
