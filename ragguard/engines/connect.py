"""`connect` and `connect_entailer`, which make an engine or an entailer with the usual layers from a name, an address
or an object.

`auto` is the engine that is taken where none is named. nano, which knows its made-up world alone, is taken only where
RAGGUARD_ENGINE names it.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ragguard.engines.base import Engine
from ragguard.engines.engine import ConnectedEngine, Layer, ModelEngine, Verbs, only_of
from ragguard.engines.entailer import EngineEntailer, Entailer
from ragguard.engines.foreign import CALL_S, ForeignEngine
from ragguard.engines.layers import Budget, Cache, Coalesce, Priority, Retry
from ragguard.engines.layers.budget import Account, Limits
from ragguard.errors import EngineRejected, InvalidInput, UnknownName
from ragguard.runtime.arguments import check_output, number_between
from ragguard.runtime.faults import NOTICES
from ragguard.text.credentials import checked_headers, keep_keys_secret
from ragguard.text.secret_filter import without_secrets

SCHEMES = (
    "nano, smol, http(s)://HOST:PORT/v1[#MODEL], labels:URL, vllm:MODEL, hf:MODEL_OR_FOLDER, gguf:FILE, auto, or an "
    "Engine; as a judge also rerank:URL, onnx:FOLDER, systemone:URL, decisions:URL, or a decision model of LangChain's"
)
ENTAILER_SCHEMES = (
    "http(s)://HOST:PORT/v1[#MODEL] (vLLM's /classify), hf:MODEL_OR_FOLDER or onnx:FOLDER (a cross-encoder), "
    "an Entailer, or an Engine"
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
    """Returns an engine that many callers can share: it caches answers, merges requests into batches, repeats failed
    ones, and keeps to a budget.

    No request is sent yet: a server is asked what it is at its first use. An engine that has layers already is returned
    unchanged, or with the budget around it.

    Args:
        engine: `nano`, `smol`, an address (`http://HOST:PORT/v1`, optionally with `#MODEL`), `vllm:MODEL`,
            `hf:MODEL`, `gguf:FILE`, or an Engine; `labels:URL` judges by labels even if the server answers typed
            questions; only to judge `rerank:URL` or `onnx:FOLDER` (relevance, by a reranker), `systemone:URL`,
            `decisions:URL` (OpenAI's form or SGLang's), or a LangChain decision model. `auto`: the one that
            RAGGUARD_ENGINE names, else that of OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL, else a server that
            answers on this machine.
        model: The model to ask for, if a server has several. None: the only one.
        api_key: The key that a server wants. None: RAGGUARD_API_KEY or OPENAI_API_KEY from the environment.
        timeout_s: How many seconds one HTTP request may take, or one call of an Engine of your own. None: 120 for a
            server, 600 for an engine of your own.
        cache: A file that keeps answers between processes, in a folder that exists. None: answers are kept in memory
            only.
        budget: Limits for only this engine (`requests`, `tokens`, `money` with a `price`), or an Account that
            several engines share.
        engine_args: vLLM's own engine arguments for `vllm:MODEL`, such as `{"max_model_len": 8192,
            "gpu_memory_utilization": 0.8}`. None: vLLM's own choices.
        headers: More headers of each HTTP request to a server, such as `{"api-key": KEY}`. None: only those
            of RAGGUARD_HEADERS, one `NAME: VALUE` a line.
    """
    account = Account.of(budget)
    check_output("cache", cache)
    in_process = isinstance(engine, str) and engine.strip().startswith("vllm:")
    if engine_args is not None and not isinstance(engine_args, Mapping):
        raise InvalidInput("engine_args", engine_args, "a mapping, such as {'max_model_len': 8192}")
    keep_keys_secret(engine_args or {})
    if engine_args and not in_process:
        raise InvalidInput("engine_args", engine_args, "nothing, as only vllm:MODEL takes them")
    if isinstance(engine, Layer):
        return Budget(engine, account) if account else engine
    make = partial(
        open_engine,
        engine,
        model=model,
        api_key=api_key,
        timeout_s=timeout_s,
        engine_args=engine_args,
        headers=headers,
    )
    return ConnectedEngine(lambda: _with_layers(make(), account, timeout_s, cache))


def connect_entailer(entailer: str | Entailer, account: Account | None = None) -> Layer:
    """Returns an NLI model to compare answers with, behind the layers of an engine. Nothing is asked or loaded before
    its first use.

    Args:
        entailer: The address of a vLLM server (`http://HOST:PORT/v1`, optionally with `#MODEL`), `hf:MODEL` or
            `hf:FOLDER`, `onnx:FOLDER`, an Entailer, or an Engine, which is asked for labels.
        account: What it may spend, shared with engines. None: no limit.
    """
    if isinstance(entailer, Engine) and isinstance(entailer, Verbs) and only_of(entailer) != "compares":
        entailer = EngineEntailer(entailer)
    if isinstance(entailer, Layer):
        return Budget(entailer, account) if account else entailer
    return ConnectedEngine(lambda: _with_layers(open_entailer(entailer), account))


def _with_layers(
    bare: Engine, account: Account | None, timeout_s: float | None = None, cache: str | Path | None = None
) -> Layer:
    """Returns the usual layers around an engine or an entailer."""
    limited = Budget(bare, account) if account else bare
    return Cache(Coalesce(Priority(Retry(limited), timeout_s or REQUEST_S)), cache)


def open_entailer(entailer: str | Entailer) -> ModelEngine | Layer:
    """Returns the entailer without layers."""
    if not isinstance(entailer, str):
        if not isinstance(entailer, Entailer):
            raise InvalidInput("entailer", entailer, ENTAILER_SCHEMES)
        return entailer if isinstance(entailer, ModelEngine | Layer) else ForeignEngine(entailer)
    from ragguard.engines.nli_models import ClassifyEntailer, CrossEncoder

    scheme, _, rest = entailer.strip().partition(":")
    if scheme in ("http", "https"):
        return ClassifyEntailer(entailer)
    if scheme == "hf" and rest:
        return CrossEncoder(rest)
    if scheme == "onnx" and rest:
        from ragguard.engines.local.onnx import OnnxEntailer

        return OnnxEntailer(rest)
    raise UnknownName("entailer", without_secrets(entailer), ENTAILER_SCHEMES)


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
    scheme, _, rest = engine.strip().partition(":") if isinstance(engine, str) else ("", "", "")
    judges_by = scheme if scheme in ("systemone", "decisions", "labels", "rerank") and rest else ""
    if isinstance(engine, str) and (judges_by or scheme in ("http", "https")):
        from ragguard.engines.http.server import ServerEngine

        url, wait = rest if judges_by else engine, timeout_s or REQUEST_S
        return ServerEngine(url, by=judges_by, model=model, api_key=api_key, timeout_s=wait, headers=headers)
    for name, value in (
        ("headers", headers and sorted(checked_headers("headers", headers))),
        ("model", model),
    ):
        if value is not None:
            raise InvalidInput(name, value, "nothing, as only a server takes it")
    if not isinstance(engine, str):
        instance: object = engine
        # A decision model of LangChain's is known without importing LangChain.
        if any(base.__module__.startswith("langchain_core.decisions") for base in type(instance).__mro__):
            from ragguard.engines.langchain_judge import LangChainJudge

            return ForeignEngine(LangChainJudge(instance), timeout_s or CALL_S)
        if not isinstance(instance, Engine):
            of_ragguard = "; of a RagGuard pass `rg.engine`" if hasattr(type(engine), "engine") else ""
            raise InvalidInput("engine", engine, f"{SCHEMES}{of_ragguard}")
        if isinstance(engine, Verbs) and engine.only == "compares":
            raise InvalidInput("engine", engine, "a language model; what compares answers is an `entailer=`")
        return engine if isinstance(engine, Verbs) else ForeignEngine(engine, timeout_s or CALL_S)
    match scheme, rest:
        case "nano", "" if ":" not in engine:
            from ragguard.engines.nano.nano_engine import NanoEngine

            return NanoEngine()
        case "smol", "" if ":" not in engine:
            from ragguard.engines.llama.gguf import GgufEngine
            from ragguard.engines.llama.smol import NAME, needed_path

            return GgufEngine(needed_path(), name=NAME)
        case "onnx", folder if folder:
            from ragguard.engines.local.onnx import OnnxReranker

            return OnnxReranker(folder)
        case "gguf", path if path:
            from ragguard.engines.llama.gguf import GgufEngine

            return GgufEngine(path)
        case "vllm", name if name:
            from ragguard.engines.local.inprocess import InProcessVllmEngine

            return InProcessVllmEngine(name, settings=engine_args)
        case "hf", name if name:
            from ragguard.engines.local.hf import HfEngine

            return HfEngine(name)
    raise UnknownName("engine", without_secrets(engine), SCHEMES)


AUTO = "auto"
PORTS = (8000, 11434, 30000, 8080)
"""The ports of this machine that are asked, in this order: those of vLLM, Ollama, SGLang and llama.cpp."""
PATIENCE_S = 0.5
"""Seconds that these servers have to answer."""
OPENAI = "OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL"


class ChosenEngine(NamedTuple):
    """The engine that was chosen."""

    address: str
    api_key: str | None = None
    """None: the key in the environment. Empty for a server that was found without being named: it gets no key."""


def choose(*, smol: bool = False) -> ChosenEngine:
    """Returns the engine that the environment names, else a server of this machine; says once which.

    Servers are asked once a process, without a key. Raises EngineRejected, with the ways out, if there is none.

    Args:
        smol: True takes smol in the end, if it has been fetched: a model of 860 MB in this process, for commands by
            which a person looks at texts.
    """
    from ragguard.engines.llama.smol import smol_path

    named = os.environ.get("RAGGUARD_ENGINE", "").strip()
    url, key, model = (os.environ.get(name, "").strip() for name in OPENAI)
    if named:
        choice, why = ChosenEngine(named), "RAGGUARD_ENGINE names it"
    elif url and key and model:
        choice, why = ChosenEngine(f"{url.partition('#')[0]}#{model}"), f"{', '.join(OPENAI)} name it"
    elif found := local_server():
        choice, why = ChosenEngine(found, ""), "the first model that a server of this machine lists"
    elif smol and smol_path():
        choice = ChosenEngine("smol")
        why = "no server is named and none answers on this machine, so this is a small model that is often wrong"
    else:
        missing = [name for name in OPENAI if not os.environ.get(name, "").strip()]
        half = f" ({missing[0]} is not set)" if len(missing) == 1 else ""
        fetched = "that is fetched already" if smol_path() else "that `ragguard fetch smol` gets (93 MB)"
        raise EngineRejected(
            f"no engine is named, and no server answers on this machine (ports {', '.join(map(str, PORTS))}, asked "
            f"once): set {', '.join(OPENAI)}{half}, or name an engine with engine=, --engine or RAGGUARD_ENGINE, such "
            f"as http://HOST:PORT/v1#MODEL or smol, a small model {fetched}"
        )
    NOTICES.once(
        f"auto: {choice.address}",
        f"the engine is {without_secrets(choice.address)}: {why} (engine= or --engine names another)",
    )
    return choice


@functools.cache
def local_server() -> str | None:
    """Returns the address of the first model that a server of this machine lists, of the servers in the order of PORTS;
    asks them once."""
    with ThreadPoolExecutor(max(1, len(PORTS))) as others:
        return next(filter(None, others.map(_model_at, PORTS)), None)


def _model_at(port: int) -> str | None:
    """Returns the address of the first model that a server lists and that does more than embed; None where there is
    none, or no server."""
    import httpx

    base = f"http://127.0.0.1:{port}/v1"
    try:
        reply = httpx.get(f"{base}/models", timeout=PATIENCE_S, trust_env=False).raise_for_status()
        names = [str(one["id"]) for one in reply.json()["data"]]
    except (httpx.HTTPError, ValueError, TypeError, KeyError):
        return None
    return next((f"{base}#{name}" for name in names if "embed" not in name.lower()), None)
