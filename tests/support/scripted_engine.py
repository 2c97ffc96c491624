"""An engine without a model: it says what it is told or draws it from a hash, and waits or fails on demand."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ragguard.engines.base import (
    EngineInfo,
    LabelMode,
    LabelProbs,
    Prompt,
    PromptLike,
    Sample,
    Samples,
    as_prompt,
)
from ragguard.errors import EngineTimeout
from ragguard.records import Usage

_LOOK_S = 0.001
"""Seconds between two looks at what another event loop changes."""


@dataclass
class Call:
    """A call as it arrived at the engine."""

    verb: str
    prompts: tuple[Prompt, ...]
    labels: tuple[str, ...] = ()
    mode: LabelMode | None = None
    n: int = 0
    seed: int | None = None
    deadline: float | None = None
    priority: int = 0

    @property
    def texts(self) -> list[str]:
        """Each prompt's last message."""
        return [prompt.messages[-1].content for prompt in self.prompts]


def unit(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:7]) / 2**56


@dataclass
class ScriptedEngine:
    """Answers at once unless `gate` is set; `fault(call)` may return an exception to raise."""

    label: Callable[[str, str], float | None] = lambda text, label: None
    """(last message, label) → probability; None: one drawn from the hash, so that six labels sum to ≤ 1."""
    answer: Callable[[str, int], str | None] = lambda text, index: None
    """(last message, index of the sample) → its text."""
    fault: Callable[[Call], BaseException | None] = lambda call: None
    gate: asyncio.Event | None = None
    """Calls wait here until it is set."""
    model: str = "scripted"
    mode: LabelMode = "first_token"
    context: int | None = None
    capabilities: frozenset[str] = frozenset(
        {"exact_labels", "sequence", "sample_logprobs", "batch", "n_samples", "seed"}
    )
    calls: list[Call] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    closed: int = 0

    async def sample(
        self,
        prompts: Sequence[PromptLike],
        n: int = 10,
        max_tokens: int = 64,
        temperature: float = 1.0,
        seed: int | None = None,
        *,
        deadline: float | None = None,
        priority: int = 0,
    ) -> Samples:
        asked = tuple(as_prompt(prompt) for prompt in prompts)
        call = Call("sample", asked, n=n, seed=seed, deadline=deadline, priority=priority)
        await self._serve(call)
        draw = random.random() if seed is None else seed
        answers = []
        for text in call.texts:
            row = []
            for index in range(n):
                words = self.answer(text, index) or f"answer {unit(draw, text, index):.6f}"
                logprobs = tuple(-unit(draw, text, index, word) for word in words.split())
                row.append(Sample(words, logprobs or (-0.1,)))
            answers.append(row)
        tokens = sum(len(sample.logprobs) for row in answers for sample in row)
        return Samples(answers, self._usage(call, tokens))

    async def label_probs(
        self,
        prompts: Sequence[PromptLike],
        labels: Sequence[str],
        mode: LabelMode | None = None,
        deadline: float | None = None,
        priority: int = 0,
    ) -> LabelProbs:
        asked = tuple(as_prompt(prompt) for prompt in prompts)
        call = Call("label_probs", asked, tuple(labels), mode, deadline=deadline, priority=priority)
        await self._serve(call)
        p = np.zeros((len(asked), len(labels)))
        for row, text in enumerate(call.texts):
            for column, label in enumerate(labels):
                given = self.label(text, label)
                p[row, column] = unit(text, label) / 6 if given is None else given
        return LabelProbs(p, mode=mode or self.mode, usage=self._usage(call, len(asked)))

    async def info(self) -> EngineInfo:
        return EngineInfo(
            self.model,
            "scripted",
            f"{self.model}/{self.mode}",
            self.mode,
            context=self.context,
            capabilities=self.capabilities,
        )

    async def aclose(self) -> None:
        self.closed += 1

    async def until_running(self, number: int, seconds: float = 5.0) -> None:
        """Waits until so many calls are under way."""
        async with asyncio.timeout(seconds):
            while self.running != number:
                await asyncio.sleep(_LOOK_S)

    async def _serve(self, call: Call) -> None:
        self.calls.append(call)
        self._count(1)
        try:
            if self.gate is not None:
                while not self.gate.is_set():  # set on another loop than the engine's
                    if call.deadline is not None and time.monotonic() > call.deadline:
                        raise EngineTimeout("the scripted engine was held past the deadline")
                    await asyncio.sleep(_LOOK_S)
            if (error := self.fault(call)) is not None:
                try:
                    raise error
                finally:
                    del error  # or it would know this frame, which knows it
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        self.running += change
        self.most_running = max(self.most_running, self.running)

    def _usage(self, call: Call, output_tokens: int) -> Usage:
        words = sum(len(message.content.split()) for prompt in call.prompts for message in prompt.messages)
        return Usage(1, len(call.prompts), words, output_tokens, 0.001)
