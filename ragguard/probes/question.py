"""What a probe asks and what comes back: plain values, so that equal questions are asked once.

Knows no engine call: whoever carries the questions (a scoring run, a guard, a price list) is behind `Ask`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, TypeVar, overload

import numpy as np

from ragguard.engines.base import HowAnswered, LabelProbs, Prompt, Sample
from ragguard.engines.entailment.base import Pair
from ragguard.errors import EngineProtocolError, RagguardError
from ragguard.records import Usage

Who = Literal["engine", "judge"]
"""The model that reads in the agent's place, or the one that judges (the same unless told)."""


@dataclass(frozen=True, slots=True)
class LabelQuestion:
    """Asks how probable each label is as what comes next."""

    prompt: Prompt
    labels: tuple[str, ...]
    who: Who = "judge"


@dataclass(frozen=True, slots=True)
class SampleQuestion:
    """Asks for `n` drawn answers."""

    prompt: Prompt
    n: int
    max_tokens: int
    temperature: float
    seed: int
    who: Who = "engine"


@dataclass(frozen=True, slots=True)
class EntailQuestion:
    """Asks whether the second answer of a pair follows from the first."""

    pair: Pair


@dataclass(frozen=True, slots=True)
class LabelAnswer:
    """The probability of each label."""

    p: tuple[float, ...]
    how: HowAnswered = "first_token"
    stderr: tuple[float, ...] | None = None
    """Where the probabilities were estimated by sampling."""
    bound: bool = False
    """Whether some label was outside what the server shows, so that its p is an upper bound."""
    truncated: int = 0
    """Tokens cut from the prompt to make it fit."""
    usage: Usage = field(default_factory=Usage)

    @property
    def remarks(self) -> dict[str, int | str]:
        """What a reader of the score should know of how it was answered."""
        found: dict[str, int | str] = {}
        if self.bound:
            found["bound"] = "upper"
        if self.how == "sampled":
            found["how"] = "sampled"
        if self.truncated:
            found["cut_tokens"] = self.truncated
        return found

    def stderr_of(self, label: int) -> float | None:
        """The standard error of one label's p: 0 where it is exact, None where only a bound is known."""
        if self.stderr is not None:
            return self.stderr[label]
        return None if self.bound else 0.0


@dataclass(frozen=True, slots=True)
class SampleAnswer:
    """The answers that were drawn."""

    samples: tuple[Sample, ...]
    truncated: int = 0
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class EntailAnswer:
    """(entailment, neutral, contradiction), and what a language model put on the three labels."""

    p: tuple[float, float, float]
    mass: float = 1.0
    truncated: int = 0
    """Tokens cut from the two answers to make them fit."""
    usage: Usage = field(default_factory=Usage)


Question: TypeAlias = LabelQuestion | SampleQuestion | EntailQuestion
Answer: TypeAlias = LabelAnswer | SampleAnswer | EntailAnswer
A = TypeVar("A", LabelAnswer, SampleAnswer, EntailAnswer)


class Ask(Protocol):
    """Carries questions to whoever answers them. A question that cannot be answered yields its error as a value."""

    @overload
    async def __call__(self, questions: Sequence[LabelQuestion]) -> list[LabelAnswer | RagguardError]: ...
    @overload
    async def __call__(self, questions: Sequence[SampleQuestion]) -> list[SampleAnswer | RagguardError]: ...
    @overload
    async def __call__(self, questions: Sequence[EntailQuestion]) -> list[EntailAnswer | RagguardError]: ...


def label_answers(probs: LabelProbs, prompts: int, labels: int) -> list[LabelAnswer]:
    """One answer for each prompt of a call, without its cost; what has the wrong shape or is not finite is refused."""
    p = np.asarray(probs.p, dtype=np.float64)
    finite = bool(np.isfinite(p).all())
    if p.shape != (prompts, labels) or not finite:
        raise EngineProtocolError(
            f"{prompts} prompts with {labels} labels were asked; the engine gave numbers of shape {p.shape}, "
            f"{'all finite' if finite else 'some not finite'}"
        )
    return [
        LabelAnswer(
            tuple(p[row].tolist()),
            probs.mode,
            None if probs.stderr is None else tuple(probs.stderr[row].tolist()),
            not probs.exact and probs.bound is not None and bool(probs.bound[row].any()),
            truncated=probs.truncated.get(row, 0),
        )
        for row in range(prompts)
    ]


def answered(answer: A | RagguardError) -> A:
    """The answer, or its error raised."""
    if isinstance(answer, RagguardError):
        raise answer
    return answer
