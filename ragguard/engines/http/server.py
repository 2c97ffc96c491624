"""ServerEngine: the model at a URL, on any kind of server. At first use the server's kind is found out.

A VllmModel then answers for a vLLM server. A ChatModel answers for every other server, and for a vLLM model that thinks
first and whose thinking cannot be switched off.
"""

from __future__ import annotations

from ragguard.engines.engine import FoundModel
from ragguard.engines.http.openai import ChatLimits, look_at_chat
from ragguard.engines.http.served import HttpEngine, served_model
from ragguard.engines.http.vllm import look_at_vllm
from ragguard.errors import EngineRejected


class ServerEngine(HttpEngine):
    """The model at `url`, such as `http://localhost:8000/v1`, optionally with `#MODEL`."""

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
        return await look_at_chat(self._client, served, notes, limits=ChatLimits())
