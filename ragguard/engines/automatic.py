"""`auto`: the engine that is taken where none is named. nano, which knows its made-up world alone, is taken only where
RAGGUARD_ENGINE names it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

from ragguard.errors import EngineRejected
from ragguard.runtime.notices import NOTICES
from ragguard.text.secret_filter import without_secrets

AUTO = "auto"
PORTS = {8000: "vLLM", 11434: "Ollama", 30000: "SGLang", 8080: "llama.cpp"}
"""The ports of this machine that are asked, in this order, and the server that usually answers there."""
PATIENCE_S = 0.5
"""Seconds that all these servers together have to answer."""
_OPENAI = "OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL"


@dataclass(frozen=True, slots=True)
class ChosenEngine:
    """The engine that was chosen, and why."""

    address: str
    reason: str
    api_key: str | None = None
    """None: the key in the environment. Empty for a server that was found without being named: it gets no key."""


def choose() -> ChosenEngine:
    """Returns the engine that the environment names, else a server of this machine, else smol; says once which.

    Servers are asked once a process, without a key. Raises EngineRejected where there is none of these.
    """
    choice = _named(os.environ) or _LOCAL.get() or _on_board()
    NOTICES.once(
        f"auto: {choice.address}",
        f"the engine is {without_secrets(choice.address)}: {choice.reason} (engine= or --engine names another)",
    )
    return choice


def _named(environment: Mapping[str, str]) -> ChosenEngine | None:
    """Returns the engine that the environment names."""
    if address := environment.get("RAGGUARD_ENGINE", "").strip():
        return ChosenEngine(address, "RAGGUARD_ENGINE names it")
    url, key, model = (environment.get(name, "").strip() for name in _OPENAI)
    if url and key and model:
        return ChosenEngine(f"{url.partition('#')[0]}#{model}", f"{', '.join(_OPENAI)} name it")
    return None


def _on_board() -> ChosenEngine:
    from ragguard.engines.llama.smol import smol_path

    if smol_path():
        return ChosenEngine(
            "smol", "no server is named and none answers on this machine; a small model that often errs"
        )
    half = all(os.environ.get(name) for name in _OPENAI[:2])
    raise EngineRejected(
        f"no engine is named{' (OPENAI_BASE_URL and OPENAI_API_KEY are set, OPENAI_MODEL is not)' if half else ''}, "
        f"no server answers on this machine (ports {', '.join(map(str, PORTS))}, asked once), and smol has not been "
        "fetched: name an engine with engine=, --engine or RAGGUARD_ENGINE, such as http://HOST:PORT/v1#MODEL, or run "
        "`ragguard fetch smol` (93 MB); nano is for its own made-up world alone"
    )


class _LocalServer:
    """The server of this machine that answered first in the order of PORTS, found once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._asked = False
        self._found: ChosenEngine | None = None

    def get(self) -> ChosenEngine | None:
        """Returns the server; asks for it the first time."""
        with self._lock:
            if not self._asked:
                with ThreadPoolExecutor(1) as other:  # the caller may be within an event loop
                    self._found = other.submit(asyncio.run, _ask_all()).result()
                self._asked = True
            return self._found


_LOCAL = _LocalServer()


async def _ask_all() -> ChosenEngine | None:
    import httpx

    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:

        async def models_at(port: int) -> list[str]:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    reply = await client.get(f"http://127.0.0.1:{port}/v1/models")
                return _models(reply.json()) if reply.status_code == 200 else []
            except (httpx.HTTPError, ValueError, OSError):  # nothing there, too slow, or no list of models
                return []

        found = dict(zip(PORTS, await asyncio.gather(*map(models_at, PORTS)), strict=True))
    for port, models in found.items():
        if models:
            several = f", the first of its {len(models)} models" if len(models) > 1 else ""
            return ChosenEngine(
                f"http://127.0.0.1:{port}/v1#{models[0]}", f"a server of this machine lists it{several}", ""
            )
    return None


def _models(answer: object) -> list[str]:
    """Returns the names in a list of models, without those that only embed; empty where it is no such list."""
    listed = answer.get("data") if isinstance(answer, Mapping) else None
    names = [one.get("id") for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    return [name for name in names if isinstance(name, str) and name and "embed" not in name.lower()]
