"""ServerEngine: the model at a URL, whatever serves it. The server is asked at first use, and the engine chosen then.

vLLM gets VllmEngine; every other server, and a vLLM model that thinks first and cannot be told not to, gets
OpenAIEngine.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from ragguard.engines.base import Engine, EngineInfo, Prompt
from ragguard.engines.http.client import HttpClient
from ragguard.engines.http.openai import OpenAIEngine
from ragguard.engines.http.served import served_model
from ragguard.engines.http.vllm import VllmEngine
from ragguard.engines.layers import Retry
from ragguard.engines.lazy import Lazy
from ragguard.engines.requests.base import R, Request
from ragguard.engines.requests.verbs import Layer, Verbs, put
from ragguard.errors import EngineRejected
from ragguard.runtime.parallel import in_parallel


class ServerEngine(Verbs):
    """The model at `url`, such as `http://localhost:8000/v1`, optionally with `#MODEL`."""

    def __init__(
        self, url: str, model: str | None = None, *, api_key: str | None = None, timeout_s: float = 120.0
    ) -> None:
        self._client = HttpClient(url, api_key, timeout_s)
        self._url, self._key, self._timeout_s = url, api_key, timeout_s
        self._wanted = model or self._client.address.model
        self._engine = Lazy(self._choose)
        self._opened: list[Engine] = []

    def __repr__(self) -> str:
        return f"ServerEngine({self._client.address.base!r}, model={self._wanted!r})"

    async def send(self, request: Request[R]) -> R:
        """Answers a request with the engine that fits the server."""
        return await put(await self._engine.get(request.deadline), request)

    async def count_tokens(self, prompts: Sequence[Prompt], deadline: float | None = None) -> list[int]:
        """Returns the tokens of each prompt where the server tells them, else the most that they can be."""
        engine = await self._engine.get(deadline)
        if isinstance(engine, VllmEngine):
            return await engine.count_tokens(prompts, deadline)
        return [sum(len(m.content.encode("utf-8", "replace")) for m in prompt.messages) for prompt in prompts]

    async def info(self) -> EngineInfo:
        """Returns what the server serves; the server is asked the first time."""
        return await (await self._engine.get()).info()

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()
        for engine in self._opened:
            await engine.aclose()

    async def _choose(self) -> Engine:
        model = await served_model(self._client, self._wanted)
        notes: list[str] = []
        if model.owner == "vllm":
            vllm = VllmEngine(self._url, self._wanted, api_key=self._key, timeout_s=self._timeout_s)
            try:
                found = await vllm.found()
                if not found.thinks:
                    self._opened.append(vllm)
                    return vllm
                notes += found.info.notes
            except EngineRejected as error:
                notes.append(f"a vLLM server that refuses what only vLLM has: {error}")
            finally:
                if vllm not in self._opened:
                    await vllm.aclose()
        chat = OpenAIEngine(
            self._url, self._wanted, api_key=self._key, timeout_s=self._timeout_s, notes=notes
        )
        self._opened.append(chat)
        return OneByOne(Retry(chat))


class OneByOne(Layer):
    """Splits requests into single prompts, `at_once` of them in flight together: for servers that take one conversation
    in each request. A layer below then repeats one prompt and not all, and the others are not paid for twice."""

    def __init__(self, engine: Engine, at_once: int = 16) -> None:
        super().__init__(engine)
        self._at_once = at_once

    async def send(self, request: Request[R]) -> R:
        """Sends each prompt by itself."""
        if len(request.prompts) < 2:
            return await put(self._engine, request)
        began = time.monotonic()
        calls = [partial(put, self._engine, request.about([prompt])) for prompt in request.prompts]
        return request.gathered(await in_parallel(calls, self._at_once), time.monotonic() - began)
