"""Engines that ask a model themselves: what they find out first, and what all have in common that show tokens."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Generic, Protocol, TypeVar, cast

import numpy as np

from ragguard.engines.base import EngineInfo, LabelMode, LabelProbs, Prompt, Samples
from ragguard.engines.labels import LabelPlan, colliding, plan_labels
from ragguard.engines.lazy import Lazy
from ragguard.engines.profile import ModelProfile, TokenModel, find_out
from ragguard.engines.requests.base import R, Request
from ragguard.engines.requests.draws import DrawRequest
from ragguard.engines.requests.labels import LabelRequest
from ragguard.engines.requests.verbs import Verbs
from ragguard.engines.truncation import fit
from ragguard.errors import (
    EngineProtocolError,
    EngineRejected,
    EngineUnreachable,
    PromptTooLong,
)

T = TypeVar("T")
Q = TypeVar("Q", LabelRequest, DrawRequest)
_MOST_PLANS = 256


class Found(Protocol):
    """What an engine found out about its model."""

    @property
    def info(self) -> EngineInfo:
        """What the model is and can do."""
        ...


F = TypeVar("F", bound=Found)


class ModelEngine(Verbs, ABC, Generic[F]):
    """An engine that asks a model, and looks at it when it is first used. A kind of it overrides `look`, and one
    method for each kind of request."""

    def __init__(self) -> None:
        self._found = Lazy(self.look)

    @abstractmethod
    async def look(self) -> F:
        """Finds out what the model is."""

    @abstractmethod
    async def labels(self, request: LabelRequest, found: F) -> LabelProbs:
        """Gives the probability of each label as what follows each prompt."""

    @abstractmethod
    async def draws(self, request: DrawRequest, found: F) -> Samples:
        """Draws answers to each prompt."""

    async def send(self, request: Request[R]) -> R:
        """Answers a request; one about no prompts without the model."""
        if not request.prompts:
            return request.empty()
        found = await self.found(request.deadline)
        try:
            if isinstance(request, LabelRequest):
                return cast(R, await self.labels(request, found))
            assert isinstance(request, DrawRequest)
            return cast(R, await self.draws(request, found))
        except EngineUnreachable:
            # A server may come back as another one.
            self._found.forget()
            raise
        except EngineRejected as error:
            # Or it has come back already, unseen between two calls.
            if error.status == 404:
                self._found.forget()
            raise

    async def found(self, deadline: float | None = None) -> F:
        """Returns what was found out about the model; it is looked at the first time."""
        return await self._found.get(deadline)

    async def info(self) -> EngineInfo:
        """Tells what the model is; it is looked at the first time."""
        return (await self.found()).info


class TokenEngine(ModelEngine[ModelProfile]):
    """An engine on a model that shows its tokens. A kind of it overrides `open` and `aclose`.

    Prompts become questions about tokens, and log-probabilities the probabilities of labels. A prompt that does not
    fit is cut where it allows that.
    """

    def __init__(self) -> None:
        super().__init__()
        self._plans: dict[tuple[str, tuple[str, ...], LabelMode | None], tuple[LabelPlan, LabelMode]] = {}

    @abstractmethod
    async def open(self) -> TokenModel:
        """Loads the model, or looks at its server."""

    async def look(self) -> ModelProfile:
        """Finds out what the model is."""
        return await find_out(await self.open())

    async def labels(self, request: LabelRequest, found: ModelProfile) -> LabelProbs:
        """Gives the probability of each label's first token, or of the whole label; labels that begin with the same
        token are distinguished by all their tokens unless the request has a mode."""
        began = time.monotonic()
        _refuse_thoughts(found)
        plan, mode = await self._planned(found, request)
        longest = 1 + max(len(ask.after) for ask in plan.asks)
        (logprobs, usage, bounds), cut = await _fitted(
            request, found, longest, lambda fitting: found.model.next_tokens(fitting, plan.asks)
        )
        p = np.minimum(plan.combine(logprobs), 1.0)
        if not np.isfinite(p).all():
            raise EngineProtocolError(
                f"{found.info.model} gave probabilities that are no numbers: its weights may be broken, or too "
                f"large for their number type; load it in another one"
            )
        bound = None if bounds is None else plan.any_of(bounds)
        exact = bound is None or not bound.any()
        usage = replace(usage, prompts=len(request.prompts), seconds=time.monotonic() - began)
        return LabelProbs(p, exact, mode, usage, bound=None if exact else bound, truncated=cut)

    async def draws(self, request: DrawRequest, found: ModelProfile) -> Samples:
        """Draws answers to each prompt."""
        began = time.monotonic()
        _refuse_thoughts(found)
        # Greedy answers are all the same one.
        distinct = replace(request, n=1) if request.temperature == 0 else request
        (answers, usage), cut = await _fitted(distinct, found, request.max_tokens, found.model.draw)
        rows = [row * (request.n // distinct.n) for row in answers]
        return Samples(rows, replace(usage, seconds=time.monotonic() - began), cut)

    async def count_tokens(self, prompts: Sequence[Prompt], deadline: float | None = None) -> list[int]:
        """Returns the tokens of each prompt, its chat template included; may be a request for each."""
        return await (await self.found(deadline)).model.tokens.count(prompts, deadline)

    async def _planned(self, found: ModelProfile, request: LabelRequest) -> tuple[LabelPlan, LabelMode]:
        key = (found.info.fingerprint, request.labels, request.mode)
        if key not in self._plans:
            texts = [found.prefix + label for label in request.labels]
            ids = await found.model.tokens.continuations(texts, request.deadline)
            mode = request.mode or ("sequence" if colliding(ids) else found.info.mode)
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = plan_labels(ids, mode), mode
        return self._plans[key]


def _refuse_thoughts(found: ModelProfile) -> None:
    if found.thinks:
        raise EngineRejected(
            f"{found.info.model} at {found.info.location} thinks before it answers and cannot be told not to: serve it "
            "with vLLM and use connect(), which samples its answers and cuts the thoughts off"
        )


async def _fitted(
    request: Q, found: ModelProfile, output: int, ask: Callable[[Q], Awaitable[T]]
) -> tuple[T, dict[int, int]]:
    """Returns the answer, and the tokens that were cut from prompts so that each leaves `output` tokens free.

    To count tokens may cost a request for each prompt: the model is asked first, and says where one is too long.
    """
    try:
        return await ask(request), {}
    except PromptTooLong as error:
        context = found.info.context or error.limit
        if context is None or context <= output:
            raise
        count = partial(found.model.tokens.count, deadline=request.deadline)
        fitting, cut = await fit(request.prompts, count, context - output)
        if not cut:
            raise
        return await ask(request.about(fitting)), cut
