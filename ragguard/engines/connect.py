"""`connect`: makes an engine with the usual layers, given a word, an address or an engine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragguard.engines.account import Account, Limits
from ragguard.engines.automatic import AUTO, choose
from ragguard.engines.base import Engine
from ragguard.engines.decisions.langchain_model import LangChainJudge, is_decision_model
from ragguard.engines.engine import ConnectedEngine, Layer, Verbs
from ragguard.engines.foreign import CALL_S, ForeignEngine
from ragguard.engines.layers import Budget, Cache, Coalesce, Priority, Retry
from ragguard.errors import InvalidInput, UnknownName
from ragguard.runtime.arguments import number_between, output_path
from ragguard.text.credentials import checked_headers
from ragguard.text.secret_filter import without_secrets

SCHEMES = (
    "nano, smol, http(s)://HOST:PORT/v1[#MODEL], labels:URL, vllm:MODEL, hf:MODEL_OR_FOLDER, gguf:FILE, auto, or an "
    "Engine; as a judge also systemone:URL, decisions:URL, or a decision model of LangChain's"
)

REQUEST_S = 120.0
"""Seconds that one HTTP request may take where nothing else is said."""


def connect(
    engine: str | Engine,
    *,
    model: str | None = None,
    api_key: str | None = None,
    timeout_s: float | None = None,
    cache: str | Path | None = None,
    budget: Account | Limits | None = None,
    engine_args: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Engine:
    """Returns an engine ready for many callers: cached, merged into batches, repeated where that helps, within a
    budget.

    No request is sent yet: a server is asked what it is at its first use. An engine that has layers already is returned
    unchanged, or with the budget around it.

    Args:
        engine: `nano`, `smol`, an address (`http://HOST:PORT/v1`, optionally with `#MODEL`), `vllm:MODEL`,
            `hf:MODEL`, `gguf:FILE`, or an Engine; `labels:URL` judges by labels where the server answers typed
            questions, too; to judge alone `systemone:URL`, `decisions:URL` (OpenAI's form or
            SGLang's), or a LangChain decision model. `auto`: the one that RAGGUARD_ENGINE names, else that of
            OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL, else a server that answers on this machine, else `smol`
            where it has been fetched.
        model: The model to ask for, where a server has several. None: the only one.
        api_key: The key that a server wants. None: RAGGUARD_API_KEY or OPENAI_API_KEY from the environment.
        timeout_s: How many seconds one HTTP request may take, or one call of an Engine of your own. None: 120 for a
            server, 600 for an engine of your own.
        cache: A file that keeps answers between processes, in a folder that is there. None: answers are kept in memory
            only.
        budget: Limits for this engine alone (`requests`, `tokens`, `money` with a `price`), or an Account that
            several engines share.
        engine_args: vLLM's own engine arguments for `vllm:MODEL`, such as `{"max_model_len": 8192,
            "gpu_memory_utilization": 0.8}`. None: vLLM's own choices.
        headers: More headers of each HTTP request to a server, such as `{"api-key": KEY}`. None: those of
            RAGGUARD_HEADERS alone, one `NAME: VALUE` a line.
    """
    account = Account.of(budget)
    if cache is not None:
        output_path("cache", cache)
    _check_engine_args(engine, engine_args)
    if isinstance(engine, Layer):
        return Budget(engine, account) if account else engine

    def make() -> Layer:
        bare = open_engine(
            engine,
            model=model,
            api_key=api_key,
            timeout_s=timeout_s,
            engine_args=engine_args,
            headers=headers,
        )
        limited = Budget(bare, account) if account else bare
        return Cache(Coalesce(Priority(Retry(limited), timeout_s or REQUEST_S)), cache)

    return ConnectedEngine(make)


def connect_judge(judge: str | Engine, account: Account | None = None) -> Engine:
    """Returns `connect(judge)`; an address that is none is refused as that of the judge."""
    try:
        return connect(judge, budget=account)
    except InvalidInput as error:
        if error.argument != "engine":
            raise
        raise type(error)("judge", error.value, error.allowed) from None


def open_engine(
    engine: str | Engine,
    *,
    model: str | None = None,
    api_key: str | None = None,
    timeout_s: float | None = None,
    engine_args: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Engine:
    """Returns the engine without layers."""
    if timeout_s is not None:
        number_between("timeout_s", timeout_s, math.ulp(0.0), math.inf, "a number of seconds, more than 0")
    if isinstance(engine, str) and engine == AUTO:
        choice = choose()
        engine, api_key = choice.address, choice.api_key if api_key is None else api_key
    scheme, colon, rest = engine.strip().partition(":") if isinstance(engine, str) else ("", "", "")
    decides = scheme in ("systemone", "decisions") and bool(rest)
    by_labels = scheme == "labels" and bool(rest)
    is_server = scheme in ("http", "https") or decides or by_labels
    if headers is not None and not is_server:
        raise InvalidInput(
            "headers", sorted(checked_headers("headers", headers)), "nothing, as only a server takes them"
        )
    if not isinstance(engine, str):
        given: object = engine
        if is_decision_model(given):
            return ForeignEngine(LangChainJudge(given), timeout_s or CALL_S)
        if not isinstance(given, Engine):
            of_ragguard = "; of a RagGuard pass `rg.engine`" if hasattr(type(engine), "engine") else ""
            raise InvalidInput("engine", engine, f"{SCHEMES}{of_ragguard}")
        return engine if isinstance(engine, Verbs) else ForeignEngine(engine, timeout_s or CALL_S)
    if decides:
        from ragguard.engines.decisions.decision_engine import DecisionEngine

        wait = timeout_s or REQUEST_S
        return DecisionEngine(scheme, rest, model, api_key=api_key, timeout_s=wait, headers=headers)
    if is_server:
        from ragguard.engines.http.server import ServerEngine

        return ServerEngine(
            rest if by_labels else engine,
            model,
            api_key=api_key,
            timeout_s=timeout_s or REQUEST_S,
            headers=headers,
            decisions=not by_labels,
        )
    if model is not None:
        raise InvalidInput(
            "model", model, "nothing, as only a server has several models: name it after the scheme"
        )
    if (scheme, colon) == ("nano", ""):
        from ragguard.engines.nano.nano_engine import NanoEngine

        return NanoEngine()
    if scheme == "vllm" and rest:
        from ragguard.engines.local.inprocess import InProcessVllmEngine

        return InProcessVllmEngine(rest, settings=engine_args)
    if (scheme, colon) == ("smol", ""):
        from ragguard.engines.llama.gguf_engine import GgufEngine
        from ragguard.engines.llama.smol import NAME, needed_path

        return GgufEngine(needed_path(), name=NAME)
    if scheme == "gguf" and rest:
        from ragguard.engines.llama.gguf_engine import GgufEngine

        return GgufEngine(rest)
    if scheme == "hf" and rest:
        from ragguard.engines.local.hf import HfEngine

        return HfEngine(rest)
    raise UnknownName("engine", without_secrets(engine), SCHEMES)


def _check_engine_args(engine: str | Engine, given: Mapping[str, Any] | None) -> None:
    """Refuses engine arguments for an engine that does not take any."""
    if given is None:
        return
    try:
        named = isinstance(given, Mapping) and all(isinstance(name, str) for name in given)
    except Exception:  # noqa: BLE001 - a mapping of the caller's may raise anything
        named = False
    if not named:
        raise InvalidInput(
            "engine_args", given, "a mapping from names to values, such as {'max_model_len': 8192}"
        )
    if given and not (isinstance(engine, str) and engine.strip().startswith("vllm:")):
        raise InvalidInput("engine_args", given, "nothing, as only vllm:MODEL takes them")
