"""Engines on the model behind a URL: on a server of any kind, or of a kind that is named.

At first use the engine finds out which model the server serves, and how it is best asked.
"""

from __future__ import annotations

from collections.abc import Mapping

from ragguard.engines.engine import FoundModel, ModelEngine, Only
from ragguard.engines.http.decisions import find_decisions, with_decisions
from ragguard.engines.http.http_client import HttpClient, served_model
from ragguard.engines.http.openai import ChatModel, look_at_chat
from ragguard.engines.http.rerank import find_ranker
from ragguard.engines.http.vllm import look_at_vllm
from ragguard.engines.token_model import ProfiledModel
from ragguard.errors import EngineRejected

_ONLY: Mapping[str, Only] = {"systemone": "judges", "decisions": "judges", "rerank": "ranks"}


class ServerEngine(ModelEngine):
    """The model at a URL, on any kind of server.

    Args:
        url: The server's address, such as `http://host:8000/v1`, optionally with `#MODEL`.
        model: The model to ask for, if the server has several. None: the only one.
        api_key: The key that the server wants. None: RAGGUARD_API_KEY or OPENAI_API_KEY from the environment.
        headers: More headers of each request, such as `{"api-key": KEY}`. None: only those of RAGGUARD_HEADERS.
        timeout_s: How many seconds one HTTP request may take.
        by: `systemone` or `decisions` for a model that judges by typed questions in this form (`decisions`: OpenAI's
            or SGLang's, whichever the server speaks) and reads nothing; `rerank` for a reranker, which judges
            relevance; `labels` for one that reads and judges by labels; empty for one that reads and judges by what
            the server offers.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 120.0,
        by: str = "",
    ) -> None:
        super().__init__()
        self._client = HttpClient(url, api_key, timeout_s, headers)
        self._wanted = model or self._client.address.model
        self._by, self.only = by, _ONLY.get(by, "")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._client.address.base!r}, model={self._wanted!r})"

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def look(self) -> FoundModel:
        """Finds out what the server serves, and how it is best asked."""
        if self.only == "ranks":
            return await find_ranker(self._client, self._wanted or "")
        served = await served_model(self._client, self._wanted)
        if self.only == "judges":
            return await find_decisions(self._client, served, self._by)
        notes: tuple[str, ...] = ()
        if served.owner == "vllm":
            try:
                model = await look_at_vllm(self._client, served)
                if not model.thinks:
                    return model
                notes = model.info.notes
            except EngineRejected as error:
                notes = (f"a vLLM server that refuses what only vLLM has: {error}",)
        # Another make of server gets a branch here, by what its `/v1/models` shows.
        chat = await look_at_chat(self._client, served, notes)
        return chat if self._by == "labels" else await with_decisions(chat, self._client, served)


class VllmEngine(ServerEngine):
    """The model that a vLLM server serves: exact label probabilities, and many prompts in one HTTP request."""

    async def look(self) -> ProfiledModel:
        """Finds out which model the server serves, and what it is."""
        return await look_at_vllm(self._client, await served_model(self._client, self._wanted))


class OpenAIEngine(ServerEngine):
    """The model behind an OpenAI-compatible server, with as much exactness as the server shows.

    Label probabilities come from `top_logprobs`; a server without log-probabilities is sampled instead, and the
    result says so.
    """

    async def look(self) -> ChatModel:
        """Finds out what the server takes and shows, and whether its model thinks first."""
        return await look_at_chat(self._client, await served_model(self._client, self._wanted))
