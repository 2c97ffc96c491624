"""Engines on the model behind a URL, and which model a server serves: the one asked for, or the only one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ragguard.engines.engine import ModelEngine
from ragguard.engines.http.body import unexpected
from ragguard.engines.http.http_client import HttpClient
from ragguard.errors import EngineOverloaded, EngineProtocolError, EngineRejected

_NO_LIST = frozenset({400, 404, 405, 500, 501})
"""The statuses with which a server without a list of models replies; others are of the key, or may pass."""


class HttpEngine(ModelEngine):
    """An engine on the model at a URL. A kind of it overrides `look`."""

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 120.0,
        connections: int = 64,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._client = HttpClient(url, api_key, timeout_s, connections, headers)
        self._wanted = model or self._client.address.model

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._client.address.base!r}, model={self._wanted!r})"

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The entry of a model in `/v1/models`."""

    id: str
    owner: str = ""
    """The server's make: `vllm` for vLLM."""
    root: str = ""
    """The name or the folder of the weights, where the server reports it."""
    context: int | None = None
    note: str = ""
    """How the server's list differs from the name that was given."""


async def served_model(client: HttpClient, wanted: str | None) -> ServedModel:
    """Returns the model to ask for. One that is named is trusted where the server's list is empty or cannot be read.

    Raises EngineRejected with the list where it has other models alone, or where none was named and there are several.
    """
    base, note = client.address.base, ""
    try:
        listed = await _listed(client)
    except (EngineRejected, EngineOverloaded, EngineProtocolError) as error:
        # Gateways may hide the list, or have none.
        if wanted is None or not (isinstance(error, EngineProtocolError) or error.status in _NO_LIST):
            raise
        return ServedModel(wanted, note=f"{wanted} is asked for as it was named: no list of models ({error})")
    names = ", ".join(str(model["id"]) for model in listed) or "none"
    if wanted:
        found = [model for model in listed if model["id"] == wanted]
        if not found and len(alike := [m for m in listed if _spelled_alike(str(m["id"]), wanted)]) == 1:
            found, note = alike, f"the server spells {wanted} as {alike[0]['id']}"
        if not found and listed and not client.address.is_azure:
            raise EngineRejected(f"{base} has no model {wanted!r}; it has: {names}")
        if not found:
            return ServedModel(
                wanted, note=f"{wanted} is asked for as it was named: the server does not list it"
            )
    else:
        # Adapters name their base model, which is taken unless an adapter is named.
        found = [model for model in listed if not model.get("parent")]
        if len(found) != 1:
            raise EngineRejected(
                f"{base} has several models or none: say which, as {base}#MODEL; it has: {names}"
            )
    model = found[0]
    meta = model.get("meta")
    context = model.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, Mapping) else None)
    return ServedModel(
        id=str(model["id"]),
        owner=str(model.get("owned_by") or ""),
        root=str(model.get("root") or ""),
        context=context if isinstance(context, int) else None,
        note=note,
    )


async def _listed(client: HttpClient) -> list[Mapping[str, Any]]:
    """Returns the server's list of models."""
    answer = await client.get("/models")
    listed = answer.get("data") if isinstance(answer, Mapping) else None
    if not isinstance(listed, list) or not all(isinstance(m, Mapping) and "id" in m for m in listed):
        raise unexpected(f"GET {client.address.base}/models", "a list of models in `data`", answer)
    return listed


def _spelled_alike(listed: str, wanted: str) -> bool:
    """True for one model in two spellings: `models/x` or `openai/x` for `x`, `x:latest` for `x`, other letter cases."""
    one, other = (name.lower().removesuffix(":latest") for name in (listed, wanted))
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")
