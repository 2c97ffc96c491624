"""VllmEngine: a vLLM server over HTTP, asked in as few requests as can be.

All prompts of a call go out as one list of rendered texts; `n` samples share a prefill; labels are
exact through `logprob_token_ids`. Priorities and seeds are the server's own.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from ragguard.engines.base import EngineInfo, LabelMode, LabelProbs, Prompt, Samples
from ragguard.engines.http.client import HttpClient
from ragguard.engines.http.served import names_nothing_served
from ragguard.engines.http.templates import Rendered
from ragguard.engines.http.vllm_server import VllmServer, look_at
from ragguard.engines.labels import LabelPlan, colliding, plan_labels
from ragguard.engines.lazy import Lazy
from ragguard.engines.requests.draws import DrawRequest
from ragguard.engines.requests.labels import LabelRequest
from ragguard.engines.requests.verbs import ModelEngine
from ragguard.engines.truncation import fit
from ragguard.errors import EngineRejected, EngineUnreachable, PromptTooLong

T = TypeVar("T")
_MOST_PLANS = 256


class _Planned(NamedTuple):
    plan: LabelPlan
    mode: LabelMode
    beginnings: list[str] | None
    """The text of each ask's tokens, where text gives those tokens back; else prompts go out as ids."""


class VllmEngine(ModelEngine):
    """The model that a vLLM server serves: exact label probabilities, and many prompts in one HTTP request.

    Args:
        url: The server's address, such as `http://host:8000/v1`, optionally with `#MODEL`.
        model: The model to ask for, where the server has several. None: the only one.
        api_key: The key that the server wants. None: RAGGUARD_API_KEY or OPENAI_API_KEY from the environment.
        timeout_s: How many seconds one HTTP request may take.
        connections: How many connections may be open at once.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 120.0,
        connections: int = 64,
    ) -> None:
        self._client = HttpClient(url, api_key, timeout_s, connections)
        self._wanted = model or self._client.address.model
        self._server = Lazy(self._look)
        self._plans: dict[tuple[str, tuple[str, ...], LabelMode | None], _Planned] = {}

    def __repr__(self) -> str:
        return f"VllmEngine({self._client.address.base!r}, model={self._wanted!r})"

    async def draws(self, request: DrawRequest) -> Samples:
        """Draws `n` answers to each prompt, all in one HTTP request."""
        began = time.monotonic()

        async def work(server: VllmServer) -> Samples:
            async def ask(fitting: Sequence[Prompt]) -> Samples:
                rendered = await server.templates.render(fitting, request.deadline)
                answers, usage = await server.completions.samples(
                    rendered, request.n, request.max_tokens, request.temperature, request.seed,
                    deadline=request.deadline, priority=request.priority,
                )  # fmt: skip
                return Samples(answers, replace(usage, seconds=time.monotonic() - began))

            samples, cut = await _fitted(server, request.prompts, request.max_tokens, ask, request.deadline)
            return replace(samples, truncated=cut)

        return await self._with_server(work, request.deadline)

    async def labels(self, request: LabelRequest) -> LabelProbs:
        """Gives the probability of each label as what follows each prompt, all in one HTTP request."""
        began = time.monotonic()

        async def work(server: VllmServer) -> LabelProbs:
            planned = await self._planned(server, request.labels, request.mode, request.deadline)

            async def ask(fitting: Sequence[Prompt]) -> LabelProbs:
                probs = await _ask_labels(server, planned, fitting, request.deadline, request.priority)
                return replace(probs, usage=replace(probs.usage, seconds=time.monotonic() - began))

            room = 1 + max(len(ask.after) for ask in planned.plan.asks)
            probs, cut = await _fitted(server, request.prompts, room, ask, request.deadline)
            return replace(probs, truncated=cut)

        return await self._with_server(work, request.deadline)

    async def count_tokens(self, prompts: Sequence[Prompt], deadline: float | None = None) -> list[int]:
        """Returns the tokens of each prompt, its chat template included; a request for each."""
        server = await self._server.get(deadline)
        return await server.templates.count(prompts, deadline=deadline)

    async def info(self) -> EngineInfo:
        """What the server serves; asks it the first time."""
        return (await self._server.get()).info

    async def server(self, deadline: float | None = None) -> VllmServer:
        """What was found out about the server; asks it the first time."""
        return await self._server.get(deadline)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def _look(self) -> VllmServer:
        return await look_at(self._client, self._wanted)

    async def _with_server(self, work: Callable[[VllmServer], Awaitable[T]], deadline: float | None) -> T:
        server = await self._server.get(deadline)
        if server.thinks:
            raise EngineRejected(
                f"{server.info.model} at {server.info.location} thinks before it answers and cannot be told not to: "
                "use connect(), which samples its answers instead"
            )
        try:
            return await work(server)
        except EngineUnreachable:
            # It may come back as another one.
            self._server.forget()
            raise
        except EngineRejected as error:
            # Or it has come back already, unseen between two calls.
            if names_nothing_served(error):
                self._server.forget()
            raise

    async def _planned(
        self, server: VllmServer, names: tuple[str, ...], mode: LabelMode | None, deadline: float | None
    ) -> _Planned:
        key = (server.info.fingerprint, names, mode)
        if key not in self._plans:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            ids = await server.templates.continuations([server.lead + name for name in names], deadline)
            chosen = mode or ("sequence" if colliding(ids) else server.info.mode)
            plan = plan_labels(ids, chosen)
            beginnings = await server.templates.beginnings([ask.after for ask in plan.asks], deadline)
            self._plans[key] = _Planned(plan, chosen, beginnings)
        return self._plans[key]


async def _fitted(
    server: VllmServer,
    asked: Sequence[Prompt],
    room: int,
    ask: Callable[[Sequence[Prompt]], Awaitable[T]],
    deadline: float | None,
) -> tuple[T, dict[int, int]]:
    """The answer, and what was cut. Counting costs a request a prompt, so the server speaks first."""
    try:
        return await ask(asked), {}
    except PromptTooLong as error:
        context = server.info.context or error.limit
        if context is None or context <= room:
            raise
        fitting, cut = await fit(asked, partial(server.templates.count, deadline=deadline), context - room)
        if not cut:
            raise
        return await ask(fitting), cut


async def _ask_labels(
    server: VllmServer, planned: _Planned, prompts: Sequence[Prompt], deadline: float | None, priority: int
) -> LabelProbs:
    """All prompts, each with all beginnings of labels, in one go."""
    asks, size = planned.plan.asks, len(prompts)
    rendered = await server.templates.render(prompts, deadline, as_ids=planned.beginnings is None)
    continued = [_continued(prompt, planned, index) for index in range(len(asks)) for prompt in rendered]
    tokens = sorted({token for ask in asks for token in ask.tokens})
    logprobs, bounds, usage = await server.completions.label_logprobs(
        continued, tokens, deadline=deadline, priority=priority
    )
    parts = []
    for index, ask in enumerate(asks):
        rows, columns = slice(index * size, (index + 1) * size), np.searchsorted(tokens, ask.tokens)
        parts.append((logprobs[rows][:, columns], bounds[rows][:, columns]))
    bound = planned.plan.any_of([flags for _, flags in parts])
    return LabelProbs(
        planned.plan.combine([values for values, _ in parts]),
        exact=not bound.any(),
        mode=planned.mode,
        usage=replace(usage, prompts=size),
        bound=bound if bound.any() else None,
    )


def _continued(prompt: Rendered, planned: _Planned, ask: int) -> Rendered:
    """A prompt with the first tokens of a label after it."""
    if isinstance(prompt, list):
        return [*prompt, *planned.plan.asks[ask].after]
    return prompt + (planned.beginnings[ask] if planned.beginnings else "")
