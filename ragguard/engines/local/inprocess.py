"""InProcessVllmEngine: vLLM's asyncio engine inside this process, without a server and without HTTP.

vLLM starts its core as a process of its own and computes there. Here it lives on an event loop in a
thread of its own, and each call waits for it in one of some threads. Scripts need the usual guard,
`if __name__ == "__main__":`, since that process begins by importing them again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ragguard.engines.local.local_engine import (
    Drawn,
    Loaded,
    LocalEngine,
    Rows,
    StillWanted,
    Worker,
    described,
)
from ragguard.engines.local.pretrained import HfTokens, checked_name, weights_identity
from ragguard.engines.requests import DrawRequest, PromptRequest
from ragguard.engines.token_model import Ids
from ragguard.errors import EngineRejected, EngineUnreachable, MissingDependency
from ragguard.runtime.limiter import in_parallel
from ragguard.runtime.per_process import PerProcess
from ragguard.runtime.threads import BackgroundLoop, DaemonThreads
from ragguard.text.secret_filter import without_secrets

T = TypeVar("T")

_AT_ONCE = 1024
"""The most prompts of one call that vLLM gets at a time; its scheduler makes batches of them."""
_CALLS = 32
"""The most calls that wait for vLLM at a time."""
_PATIENCE_S = 30.0
"""The longest wait for a shutdown, in seconds."""
_POLL_S = 0.1
"""Seconds after which a call looks again whether its caller still waits."""


class InProcessVllmEngine(LocalEngine):
    """A model that vLLM runs in this process, on a GPU or a CPU. Needs the extra `vllm`.

    Args:
        model: The model's name on the Hugging Face hub, or its folder.
        settings: vLLM's own engine arguments, such as `max_model_len` or `gpu_memory_utilization`.
    """

    def __init__(self, model: str | Path, *, settings: Mapping[str, Any] | None = None) -> None:
        if find_spec("vllm") is None:
            raise MissingDependency("vllm", "an engine that runs vLLM in this process", "vllm")
        load = partial(_open, str(model), checked_name(str(model)), dict(settings or {}))
        threads = PerProcess(lambda: DaemonThreads(_CALLS, "ragguard-vllm-call"))
        super().__init__(Worker(f"vLLM with {model}", load, threads))


def _open(name: str, name_or_path: str, settings: Mapping[str, Any]) -> Loaded:
    """Starts vLLM."""
    settings = {"scheduling_policy": "priority", "disable_log_stats": True, **settings}
    loop = BackgroundLoop("ragguard-vllm")
    try:
        vllm = loop.run(_started(name_or_path, settings))
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        said = without_secrets(str(error)).strip()[:500]
        raise EngineRejected(
            f"vLLM could not start {name}: {said}; check the name, the settings, and "
            "that the script guards its start with `if __name__ == '__main__':`"
        ) from error
    config = vllm.model_config
    identity = f"{weights_identity(name_or_path, config.hf_config)} {config.dtype}"
    info = described(name, "vllm-inprocess", identity, int(config.max_model_len), ", through vLLM")
    if settings["scheduling_policy"] == "priority":
        info = replace(info, capabilities=info.capabilities | {"priority"})
    tokenizer = vllm.get_tokenizer()
    tokens = HfTokens(tokenizer, [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)])
    model = _InProcessModel(name, vllm, loop, tokens.ends)
    return Loaded(model, tokens, info, model.end)


async def _started(name_or_path: str, settings: Mapping[str, Any]) -> Any:
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_engine_args(AsyncEngineArgs(model=name_or_path, **settings))


class _InProcessModel:
    """A `ComputingModel` that waits for vLLM, which takes many calls at a time."""

    def __init__(self, name: str, vllm: Any, loop: BackgroundLoop, ends: frozenset[int]) -> None:
        self._name, self._vllm, self._loop, self._ends = name, vllm, loop, ends
        self._ids = itertools.count()

    def end(self) -> None:
        """Ends vLLM and its loop, which cancels the calls that still wait."""

        async def shut_down() -> None:
            self._vllm.shutdown()

        wait([self._loop.submit(shut_down())], _PATIENCE_S)
        self._loop.stop()

    def logprobs(
        self, rows: Rows, texts: Rows, then: Ids, request: PromptRequest, still_wanted: StillWanted
    ) -> list[list[float]]:
        async def one(row: Ids, text: Ids) -> list[float]:
            # Whatever is sampled, the probabilities of the wanted tokens are shown.
            wanted: dict[str, Any] = {"logprob_token_ids": list(then)} if then else {}
            wanted |= {"prompt_logprobs": 0} if text else {}
            last = await self._last([*row, *text], request, max_tokens=1, **wanted)
            own = [last.prompt_logprobs[len(row) + at][token].logprob for at, token in enumerate(text)]
            return own + [last.outputs[0].logprobs[0][token].logprob for token in then]

        calls = [partial(one, row, text) for row, text in zip(rows, texts, strict=True)]
        return self._wait(calls, still_wanted)

    def draw(self, rows: Rows, request: DrawRequest, still_wanted: StillWanted) -> list[list[Drawn]]:
        async def one(row: Sequence[int]) -> list[Drawn]:
            seed = None if request.seed is None else _seed_of(request.seed, row)
            wanted = {
                "n": request.n,
                "max_tokens": request.max_tokens,
                "temperature": request.temperature,
                "stop_token_ids": sorted(self._ends),
            }
            last = await self._last(row, request, seed=seed, logprobs=0, **wanted)
            return [_drawn(output) for output in sorted(last.outputs, key=lambda output: int(output.index))]

        return self._wait([partial(one, row) for row in rows], still_wanted)

    def _wait(
        self, calls: Sequence[Callable[[], Coroutine[Any, Any, T]]], still_wanted: StillWanted
    ) -> list[T]:
        """Returns what the calls on vLLM's loop return; cancels them, so that vLLM drops its requests, where no caller
        waits any more."""
        future = self._loop.submit(in_parallel(calls, _AT_ONCE))
        try:
            while not wait([future], _POLL_S).done:
                still_wanted()
            if future.cancelled():
                still_wanted()
            return future.result()
        finally:
            future.cancel()

    async def _last(self, prompt: Sequence[int], request: PromptRequest, **wanted: Any) -> Any:
        """Returns the last thing that vLLM says of one prompt: all of its answers."""
        from vllm.exceptions import VLLMClientError, VLLMError
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        sampling = SamplingParams(detokenize=False, output_kind=RequestOutputKind.FINAL_ONLY, **wanted)
        given, name = {"prompt_token_ids": list(prompt)}, f"ragguard-{next(self._ids)}"
        try:
            stream = self._vllm.generate(given, sampling, name, priority=request.priority)
            *_, last = [output async for output in stream]
            return last
        except VLLMClientError as error:
            raise EngineRejected(f"vLLM refused a prompt for {self._name}: {error}") from error
        except VLLMError as error:
            raise EngineUnreachable(
                f"vLLM with {self._name} failed ({type(error).__name__}: {error}); if its core has died, connect again"
            ) from error


def _drawn(output: Any) -> Drawn:
    if output.finish_reason not in ("stop", "length"):
        raise EngineUnreachable(f"vLLM broke an answer off ({output.finish_reason})")
    ids = list(output.token_ids)
    logprobs = [shown[token].logprob for token, shown in zip(ids, output.logprobs, strict=True)]
    return Drawn(ids, logprobs, output.finish_reason == "stop")


def _seed_of(seed: int, prompt: Sequence[int]) -> int:
    """Returns a seed for one prompt; vLLM adds 1, 2, … to it for the other samples, so it is below the largest seed."""
    return int(np.random.SeedSequence([seed % 2**63, *prompt]).generate_state(1, np.uint64)[0]) >> 2
