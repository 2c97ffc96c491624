"""InProcessVllmEngine: vLLM's asyncio engine inside this process, without a server and without HTTP.

vLLM starts its core as a process of its own and computes there. Here it lives on an event loop in a
thread of its own, so that callers may be on any loop. Scripts need the usual guard,
`if __name__ == "__main__":`, since that process begins by importing them again.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ragguard.engines.base import EngineInfo
from ragguard.engines.labels import Asks, Logprobs, NextTokenAsk, checked_logprob
from ragguard.engines.local.local_engine import Drawn, Loaded, LocalEngine, Rows
from ragguard.engines.local.pretrained import HfTokens, weights_identity
from ragguard.engines.requests import DrawRequest, Request
from ragguard.engines.token_model import EXACT_CAPABILITIES, ModelReport
from ragguard.errors import (
    Closed,
    EngineProtocolError,
    EngineRejected,
    EngineUnreachable,
    InvalidInput,
    MissingDependency,
)
from ragguard.runtime.deadline import until
from ragguard.runtime.limiter import in_parallel
from ragguard.runtime.threads import BackgroundLoop
from ragguard.text.secret_filter import without_secrets

T = TypeVar("T")

_AT_ONCE = 1024
"""The most prompts that vLLM gets at a time; its scheduler makes batches of them."""
_PATIENCE_S = 30.0
"""The longest wait for a shutdown, in seconds."""


class InProcessVllmEngine(LocalEngine):
    """A model that vLLM runs in this process, on a GPU or a CPU. Needs the extra `vllm`.

    Args:
        model: The model's name on the Hugging Face hub, or its folder.
        settings: vLLM's own engine arguments, such as `max_model_len` or `gpu_memory_utilization`.
    """

    def __init__(self, model: str | Path, *, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(_InProcessModel(str(model), dict(settings or {})))


class _InProcessModel:
    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        if find_spec("vllm") is None:
            raise MissingDependency("vllm", "an engine that runs vLLM in this process", "vllm")
        folder = Path(name).expanduser()
        if name.startswith((".", "/", "~")) and not (folder / "config.json").is_file():
            raise InvalidInput("model", name, "a folder with a config.json, or a name on the hub")
        self._name, self._name_or_path = name, str(folder) if folder.exists() else name
        self._settings = settings
        self._lock = threading.Lock()
        self._loop = BackgroundLoop("ragguard-vllm")
        self._vllm: Any = None
        self._loaded: Loaded | None = None
        self._closed = threading.Event()
        self._ids = itertools.count()

    async def load(self) -> Loaded:
        return await self._on_own_loop(self._load())

    async def logprobs(self, rows: Rows, asks: Asks, request: Request) -> Logprobs:
        async with until(request.deadline, f"vLLM with {self._name}"):
            return await self._on_own_loop(self._logprobs(rows, asks, request.priority))

    async def text_logprobs(self, rows: Rows, texts: Rows, request: Request) -> list[list[float]]:
        async with until(request.deadline, f"vLLM with {self._name}"):
            return await self._on_own_loop(self._text_logprobs(rows, texts, request.priority))

    async def draw(self, rows: Rows, request: DrawRequest) -> list[list[Drawn]]:
        async with until(request.deadline, f"vLLM with {self._name}"):
            return await self._on_own_loop(self._draw(rows, request))

    async def aclose(self) -> None:
        with self._lock:
            ending = (
                None if self._closed.is_set() or not self._loop.started else self._loop.submit(self._end())
            )
            self._closed.set()
        if ending is None:
            return
        await asyncio.wait({asyncio.wrap_future(ending)}, timeout=_PATIENCE_S)

    async def _on_own_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine on vLLM's own loop. Cancelling the caller cancels it, and vLLM drops its requests."""
        with self._lock:
            if self._closed.is_set():
                work.close()
                raise Closed(f"vLLM with {self._name} was closed: connect again")
            future = self._loop.submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if self._closed.is_set() and caller is not None and not caller.cancelling():
                raise Closed(f"vLLM with {self._name} was closed while it was asked") from None
            raise

    async def _end(self) -> None:
        """Ends vLLM and its loop, which cancels the calls that still wait."""
        vllm, self._vllm = self._vllm, None
        try:
            if vllm is not None:
                vllm.shutdown()
        finally:
            asyncio.get_running_loop().stop()

    async def _load(self) -> Loaded:
        """Starts vLLM once; other callers wait meanwhile, since the start keeps vLLM's loop busy."""
        if self._loaded is None:
            from vllm import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM

            settings = {"scheduling_policy": "priority", "disable_log_stats": True, **self._settings}
            try:
                self._vllm = AsyncLLM.from_engine_args(AsyncEngineArgs(model=self._name_or_path, **settings))
            except (OSError, ValueError, TypeError, RuntimeError) as error:
                said = without_secrets(str(error)).strip()[:500]
                raise EngineRejected(
                    f"vLLM could not start {self._name}: {said}; check the name, the settings, and "
                    "that the script guards its start with `if __name__ == '__main__':`"
                ) from error
            config = self._vllm.model_config
            takes_priority = settings["scheduling_policy"] == "priority"
            identity = f"{weights_identity(self._name_or_path, config.hf_config)} {config.dtype}"
            info = EngineInfo(
                model=self._name,
                kind="vllm-inprocess",
                fingerprint="",
                context=int(config.max_model_len),
                location="in this process, through vLLM",
                capabilities=EXACT_CAPABILITIES | {"priority"} if takes_priority else EXACT_CAPABILITIES,
            )
            self._loaded = Loaded(HfTokens(self._vllm.get_tokenizer()), ModelReport(info, identity))
        return self._loaded

    async def _logprobs(self, prompts: Rows, asks: Asks, priority: int) -> Logprobs:
        from vllm import SamplingParams

        async def one(prompt: Sequence[int], ask: NextTokenAsk) -> list[float]:
            # Whatever is sampled, the probabilities of the label's tokens are shown.
            wanted = SamplingParams(
                max_tokens=1, temperature=1.0, logprob_token_ids=sorted(set(ask.tokens)), detokenize=False
            )
            (output,) = await self._generate([*prompt, *ask.after], wanted, priority)
            shown = output.logprobs[0] if output.logprobs else {}
            if not shown.keys() >= set(ask.tokens):
                raise EngineProtocolError("vLLM did not show the log-probabilities that it was asked for")
            return [checked_logprob(shown[token].logprob) for token in ask.tokens]

        rows = await in_parallel([partial(one, prompt, ask) for ask in asks for prompt in prompts], _AT_ONCE)
        size = len(prompts)
        return [np.array(rows[i * size : (i + 1) * size]) for i in range(len(asks))]

    async def _text_logprobs(self, rows: Rows, texts: Rows, priority: int) -> list[list[float]]:
        from vllm import SamplingParams

        async def one(row: Sequence[int], text: Sequence[int]) -> list[float]:
            wanted = SamplingParams(max_tokens=1, temperature=1.0, prompt_logprobs=0, detokenize=False)
            shown = (await self._last([*row, *text], wanted, priority)).prompt_logprobs or []
            if len(shown) < len(row) + len(text):
                raise EngineProtocolError("vLLM did not show the log-probabilities of a prompt")
            return [checked_logprob(shown[len(row) + at][token].logprob) for at, token in enumerate(text)]

        return await in_parallel(
            [partial(one, row, text) for row, text in zip(rows, texts, strict=True)], _AT_ONCE
        )

    async def _draw(self, rows: Rows, request: DrawRequest) -> list[list[Drawn]]:
        from vllm import SamplingParams

        async def one(row: Sequence[int]) -> list[Drawn]:
            wanted = SamplingParams(
                n=request.n,
                max_tokens=request.max_tokens,
                temperature=request.temperature,
                seed=None if request.seed is None else _seed_of(request.seed, row),
                logprobs=0,
                detokenize=False,
            )
            return [_drawn(output) for output in await self._generate(row, wanted, request.priority)]

        return await in_parallel([partial(one, row) for row in rows], _AT_ONCE)

    async def _generate(self, prompt: Sequence[int], wanted: Any, priority: int) -> list[Any]:
        """Returns vLLM's outputs for one prompt, complete and in order."""
        last = await self._last(prompt, wanted, priority)
        if len(last.outputs) != wanted.n:
            raise EngineProtocolError(f"vLLM gave another number of answers than {wanted.n}")
        return sorted(last.outputs, key=lambda output: int(output.index))

    async def _last(self, prompt: Sequence[int], wanted: Any, priority: int) -> Any:
        """Returns the last thing that vLLM says of one prompt: all of its answers."""
        from vllm.exceptions import VLLMClientError, VLLMError
        from vllm.sampling_params import RequestOutputKind

        wanted.output_kind = RequestOutputKind.FINAL_ONLY
        last = None
        try:
            stream = self._vllm.generate(
                {"prompt_token_ids": list(prompt)}, wanted, f"ragguard-{next(self._ids)}", priority=priority
            )
            async for output in stream:
                last = output
        except VLLMClientError as error:
            raise EngineRejected(f"vLLM refused a prompt for {self._name}: {error}") from error
        except VLLMError as error:
            raise EngineUnreachable(
                f"vLLM with {self._name} failed ({type(error).__name__}: {error}); if its core has died, connect again"
            ) from error
        if last is None:
            raise EngineProtocolError(f"vLLM gave no answer for {self._name}")
        return last


def _drawn(output: Any) -> Drawn:
    if output.finish_reason not in ("stop", "length"):
        raise EngineUnreachable(f"vLLM broke an answer off ({output.finish_reason})")
    ids = list(output.token_ids)
    if not output.logprobs or len(output.logprobs) != len(ids):
        raise EngineProtocolError("vLLM did not show the log-probabilities of a sample")
    logprobs = [
        checked_logprob(shown[token].logprob) for token, shown in zip(ids, output.logprobs, strict=True)
    ]
    return Drawn(ids, logprobs, output.finish_reason == "stop")


def _seed_of(seed: int, prompt: Sequence[int]) -> int:
    """Returns a seed for one prompt; vLLM adds 1, 2, … to it for the other samples, so it is below the largest seed."""
    return int(np.random.SeedSequence([seed % 2**63, *prompt]).generate_state(1, np.uint64)[0]) >> 2
