"""Engines on the model behind a URL, and which model a server serves: the one asked for, or the only one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ragguard.engines.engine import ModelEngine
from ragguard.engines.http.http_client import HttpClient
from ragguard.errors import EngineProtocolError, EngineRejected


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
    ) -> None:
        super().__init__()
        self._client = HttpClient(url, api_key, timeout_s, connections)
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


async def served_model(client: HttpClient, wanted: str | None) -> ServedModel:
    """Returns the model to ask for. Raises EngineRejected with the list where it is not there, or where none was named
    and there are several."""
    base = client.address.base
    try:
        answer = await client.get("/models")
    except EngineRejected as error:
        # Gateways may hide the list, which is not needed where a model is named.
        if wanted and error.status == 404:
            return ServedModel(wanted)
        raise
    listed = answer.get("data") if isinstance(answer, Mapping) else None
    if not isinstance(listed, list) or not all(isinstance(m, Mapping) and "id" in m for m in listed):
        raise EngineProtocolError(
            f"GET {base}/models: no list of models in the answer; is this an OpenAI-compatible server?"
        )
    names = ", ".join(str(model["id"]) for model in listed) or "none"
    if wanted:
        found = [model for model in listed if model["id"] == wanted]
        if not found:
            raise EngineRejected(f"{base} has no model {wanted!r}; it has: {names}")
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
        str(model["id"]),
        str(model.get("owned_by") or ""),
        str(model.get("root") or ""),
        context if isinstance(context, int) else None,
    )
