"""ServerEngine: the model at a URL, on any kind of server. At first use the server's kind is found out.

A VllmModel then answers for a vLLM server. A ChatModel answers for every other server, and for a vLLM model that thinks
first and whose thinking cannot be switched off.
"""

from __future__ import annotations

from collections.abc import Mapping

from ragguard.engines.decisions.judging_chat import with_decisions
from ragguard.engines.engine import FoundModel
from ragguard.engines.http.openai import ChatLimits, look_at_chat
from ragguard.engines.http.served import HttpEngine, served_model
from ragguard.engines.http.vllm import look_at_vllm
from ragguard.errors import EngineRejected


class ServerEngine(HttpEngine):
    """The model at a URL, on any kind of server.

    Args:
        url: The server's address, such as `http://localhost:8000/v1`, optionally with `#MODEL`.
        model: The model to ask for, where the server has several. None: the only one.
        api_key: The key that the server wants. None: RAGGUARD_API_KEY or OPENAI_API_KEY from the environment.
        timeout_s: How many seconds one HTTP request may take.
        headers: More headers of each request. None: those of RAGGUARD_HEADERS alone.
        decisions: Judges by typed questions where a server of chat completions answers these.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 120.0,
        headers: Mapping[str, str] | None = None,
        decisions: bool = True,
    ) -> None:
        super().__init__(url, model, api_key=api_key, timeout_s=timeout_s, headers=headers)
        self._decisions = decisions

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
        # Another make of server gets a branch here, by what its `/v1/models` shows.
        limits = ChatLimits()
        chat = await look_at_chat(self._client, served, notes, limits=limits)
        return await with_decisions(chat, self._client, served, limits.at_once) if self._decisions else chat
