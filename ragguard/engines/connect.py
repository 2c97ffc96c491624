"""`connect`: makes an engine with the usual layers, given a word, an address or an engine."""

from __future__ import annotations

from pathlib import Path

from ragguard.engines.account import Account, Limits
from ragguard.engines.base import Engine
from ragguard.engines.layers import Budget, Cache, Coalesce, Priority, Retry
from ragguard.engines.requests.verbs import Layer
from ragguard.errors import InvalidInput, UnknownName
from ragguard.secrets import without_secrets

SCHEMES = "nano, http(s)://HOST:PORT/v1[#MODEL], vllm:MODEL, hf:MODEL_OR_FOLDER, or an Engine"


def connect(
    engine: str | Engine,
    *,
    model: str | None = None,
    api_key: str | None = None,
    timeout_s: float = 120.0,
    cache: str | Path | None = None,
    budget: Account | Limits | None = None,
) -> Engine:
    """Returns an engine ready for many callers: cached, merged into batches, repeated where that helps, within a
    budget.

    No request is sent yet: a server is asked what it is at its first use. An engine that has layers already is returned
    unchanged, or with the budget around it.

    Args:
        engine: `nano`, an address (`http://HOST:PORT/v1`, optionally with `#MODEL`), `vllm:MODEL`, `hf:MODEL`, or
            an Engine.
        model: The model to ask for, where a server has several. None: the only one.
        api_key: The key that a server wants. None: RAGGUARD_API_KEY or OPENAI_API_KEY from the environment.
        timeout_s: How many seconds one HTTP request may take.
        cache: A file that keeps answers between processes. None: answers are kept in memory only.
        budget: Limits for this engine alone (`requests`, `tokens`, `money` with a `price`), or an Account that
            several engines share.
    """
    account = Account.of(budget)
    if isinstance(engine, Layer):
        return Budget(engine, account=account) if account else engine
    bare = open_engine(engine, model=model, api_key=api_key, timeout_s=timeout_s)
    return Cache(Coalesce(Retry(Priority(Budget(bare, account=account)))), cache)


def open_engine(
    engine: str | Engine, *, model: str | None = None, api_key: str | None = None, timeout_s: float = 120.0
) -> Engine:
    """Returns the engine without layers."""
    if not isinstance(engine, str):
        if not isinstance(engine, Engine):
            raise InvalidInput("engine", engine, SCHEMES)
        return engine
    scheme, colon, rest = engine.strip().partition(":")
    if scheme in ("http", "https"):
        from ragguard.engines.http.server import ServerEngine

        return ServerEngine(engine, model, api_key=api_key, timeout_s=timeout_s)
    if model is not None:
        raise InvalidInput(
            "model", model, "nothing, as only a server has several models: name it after the scheme"
        )
    if (scheme, colon) == ("nano", ""):
        from ragguard.engines.nano.engine import NanoEngine

        return NanoEngine()
    if scheme == "vllm" and rest:
        from ragguard.engines.local.inprocess import InProcessVllmEngine

        return InProcessVllmEngine(rest)
    if scheme == "hf" and rest:
        from ragguard.engines.local.hf import HfEngine

        return HfEngine(rest)
    raise UnknownName("engine", without_secrets(engine), SCHEMES)
