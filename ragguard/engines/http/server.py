"""ServerEngine: the model at a URL, on any kind of server. At first use the server's kind is found out.

A VllmModel then answers for a vLLM server. A ChatModel answers for every other server, and for a vLLM model that thinks
first and cannot be told not to.
"""

from __future__ import annotations

from ragguard.engines.engine import FoundModel, ModelEngine
from ragguard.engines.http.client import HttpClient
from ragguard.engines.http.openai import ChatLimits, look_at_chat
from ragguard.engines.http.served import served_model
from ragguard.engines.http.vllm import look_at_vllm
from ragguard.engines.layers.retry import Patience
from ragguard.errors import EngineRejected


class ServerEngine(ModelEngine):
    """The model at `url`, such as `http://localhost:8000/v1`, optionally with `#MODEL`."""

    def __init__(
        self, url: str, model: str | None = None, *, api_key: str | None = None, timeout_s: float = 120.0
    ) -> None:
        super().__init__()
        self._client = HttpClient(url, api_key, timeout_s)
        self._limits, self._patience = ChatLimits(), Patience()
        # A server that takes one conversation in each request gets few of them at once.
        self._chat_client = HttpClient(url, api_key, timeout_s, connections=self._limits.at_once)
        self._wanted = model or self._client.address.model

    def __repr__(self) -> str:
        return f"ServerEngine({self._client.address.base!r}, model={self._wanted!r})"

    async def look(self) -> FoundModel:
        """Finds out what the server serves, and how it is best asked."""
        served = await served_model(self._client, self._wanted)
        notes: tuple[str, ...] = ()
        if served.owner == "vllm":
            try:
                found = await look_at_vllm(self._client, served)
                if not found.thinks:
                    return found
                notes = found.info.notes
            except EngineRejected as error:
                notes = (f"a vLLM server that refuses what only vLLM has: {error}",)
        return await look_at_chat(
            self._chat_client, served, notes, limits=self._limits, patience=self._patience
        )

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()
        await self._chat_client.aclose()
