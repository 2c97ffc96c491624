"""Questions of probes and their answers, as plain values, and how many tokens a question has about.

Equal questions are asked once. This file calls no engine. A scoring run, a guard or a price list sends the questions;
probes know it as `Ask`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Literal, Protocol, TypeAlias, TypeVar, overload

from ragguard.engines.base import HowAnswered, Prompt, Sample, as_labels
from ragguard.engines.entailment import EntailRequest, Pair
from ragguard.engines.labels import LabelRequest
from ragguard.engines.requests import ContinuationRequest, DrawRequest, Value
from ragguard.errors import EngineProtocolError, RagguardError
from ragguard.records import CUT_TOKENS, Usage

Who = Literal["engine", "judge"]
"""The model that reads in the agent's place, or the one that judges; these are one model where no judge is given."""


_ROUNDING = 1e-3
"""How far a probability may lie outside 0 to 1 because it was computed with few digits."""


@dataclass(frozen=True, slots=True)
class LabelQuestion:
    """Asks how probable each label is as the next words."""

    prompt: Prompt
    labels: tuple[str, ...]
    who: Who = "judge"
    probe: str = ""
    """The probe's name in an examination; empty for one that no examination has."""
    about: tuple[str, ...] = ()
    """The query and the passages of a question that another probe answers where the model failed in its own."""
    verb: ClassVar[str] = "label_probs"

    @property
    def call(self) -> LabelRequest:
        """The call, without prompts. Questions for one model with equal calls go out as one."""
        return _label_call(self.labels)

    def answer(self, value: Value, usage: Usage) -> LabelAnswer:
        """Returns the answer that a value of the call's reply is; raises EngineProtocolError for numbers that are no
        probabilities."""
        p, exact, mode, bound, stderr, cut = value
        if not all(-_ROUNDING <= one <= 1 + _ROUNDING for one in p):
            raise EngineProtocolError(
                f"the engine gave the labels {', '.join(self.labels)} the numbers {', '.join(map(str, p))}: return "
                "probabilities, from 0 to 1, and no log-probabilities or percentages, from `label_probs`"
            )
        return LabelAnswer(p, mode, stderr, not exact and any(bound or ()), truncated=cut, usage=usage)


@lru_cache(maxsize=256)
def _label_call(labels: tuple[str, ...]) -> LabelRequest:
    return LabelRequest((), as_labels(labels))


@dataclass(frozen=True, slots=True)
class SampleQuestion:
    """Asks for `n` drawn answers."""

    prompt: Prompt
    n: int
    max_tokens: int
    temperature: float
    seed: int
    who: Who = "engine"
    verb: ClassVar[str] = "sample"
    probe: ClassVar[str] = ""

    @property
    def call(self) -> DrawRequest:
        """The call, without prompts; see LabelQuestion."""
        return DrawRequest((), self.n, self.max_tokens, self.temperature, seed=self.seed)

    def answer(self, value: Value, usage: Usage) -> SampleAnswer:
        """Returns the answer that a value of the call's reply is."""
        samples, cut = value
        return SampleAnswer(tuple(Sample(*sample) for sample in samples), cut, usage)


@dataclass(frozen=True, slots=True)
class TextQuestion:
    """Asks how probable a given text is after a prompt, which carries it."""

    prompt: Prompt
    who: Who = "engine"
    probe: str = ""
    """The probe's name in an examination, as of a LabelQuestion."""
    verb: ClassVar[str] = "continuations"
    call: ClassVar[ContinuationRequest] = ContinuationRequest(())

    def answer(self, value: Value, usage: Usage) -> TextAnswer:
        """Returns the answer that a value of the call's reply is."""
        logprobs, end, cut = value
        return TextAnswer(logprobs, end, cut, usage)


@dataclass(frozen=True, slots=True)
class EntailQuestion:
    """Asks whether the second answer of a pair follows from the first."""

    pair: Pair
    who: ClassVar[Literal["entailer"]] = "entailer"
    verb: ClassVar[str] = "entail"
    call: ClassVar[EntailRequest] = EntailRequest(())
    probe: ClassVar[str] = "entailment"

    @property
    def prompt(self) -> Pair:
        """The pair, under the name that requests have for it."""
        return self.pair

    def answer(self, value: Value, usage: Usage) -> EntailAnswer:
        """Returns the answer that a value of the call's reply is."""
        p, mass, cut = value
        return EntailAnswer(p, mass, cut, usage)


@dataclass(frozen=True, slots=True)
class LabelAnswer:
    """The probabilities of the labels of one question."""

    p: tuple[float, ...]
    how: HowAnswered | Literal["likelihood"] = "first_token"
    stderr: tuple[float, ...] | None = None
    """The standard errors of the probabilities where these were estimated by sampling; else None."""
    bound: bool = False
    """True where some label was outside what the server shows, so that its p is an upper bound."""
    truncated: int = 0
    """How many tokens were cut from the prompt to make it fit."""
    usage: Usage = field(default_factory=Usage)

    @property
    def remarks(self) -> dict[str, int | str]:
        """Facts for the reader of a score about how the question was answered."""
        found: dict[str, int | str] = {}
        if self.bound:
            found["bound"] = "upper"
        if self.how in ("sampled", "likelihood"):
            found["how"] = self.how
        if self.truncated:
            found[CUT_TOKENS] = self.truncated
        return found


@dataclass(frozen=True, slots=True)
class SampleAnswer:
    """The answers that were drawn for one question."""

    samples: tuple[Sample, ...]
    truncated: int = 0
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class TextAnswer:
    """The log-probabilities of the tokens of the given text."""

    logprobs: tuple[float, ...]
    end: float | None = None
    """The log-probability that the answer ends behind the text; None where the engine does not tell it."""
    truncated: int = 0
    """How many tokens were cut from the prompt to make it fit."""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class EntailAnswer:
    """The probabilities (entailment, neutral, contradiction), and how much of its probability a language model put on
    these three labels."""

    p: tuple[float, float, float]
    mass: float = 1.0
    truncated: int = 0
    """How many tokens were cut from the answers to make them fit."""
    usage: Usage = field(default_factory=Usage)


PromptQuestion: TypeAlias = LabelQuestion | SampleQuestion | TextQuestion
Question: TypeAlias = PromptQuestion | EntailQuestion
Answer: TypeAlias = LabelAnswer | SampleAnswer | TextAnswer | EntailAnswer
A = TypeVar("A")


class Ask(Protocol):
    """Sends questions and returns their answers; an error stands in the place of an answer that cannot be given."""

    @overload
    async def __call__(self, questions: Sequence[LabelQuestion]) -> list[LabelAnswer | RagguardError]: ...
    @overload
    async def __call__(self, questions: Sequence[SampleQuestion]) -> list[SampleAnswer | RagguardError]: ...
    @overload
    async def __call__(self, questions: Sequence[TextQuestion]) -> list[TextAnswer | RagguardError]: ...
    @overload
    async def __call__(self, questions: Sequence[EntailQuestion]) -> list[EntailAnswer | RagguardError]: ...


def remarks_of_both(one: Mapping[str, int | str], other: Mapping[str, int | str]) -> dict[str, int | str]:
    """Returns the remarks of two answers for a score that rests on both, with the larger cut."""
    cuts = [remarks[CUT_TOKENS] for remarks in (one, other) if CUT_TOKENS in remarks]
    return {**one, **other, **({CUT_TOKENS: max(map(int, cuts))} if cuts else {})}


def answered(answer: A | RagguardError) -> A:
    """Returns the answer; raises the error that stands in its place."""
    if isinstance(answer, RagguardError):
        raise answer
    return answer


_PIECES = re.compile(r"[A-Za-z0-9]{1,6}|[^\sA-Za-z0-9]")
_SAMPLE = 40_000
_SHORT = 2_000
# What a chat template adds around one message.
_TURN = 5


def count_tokens(text: str) -> int:
    """Returns about how many tokens `text` has; of a long text, by its first 40,000 characters."""
    if len(text) > _SAMPLE:
        return -(-_count(text[:_SAMPLE]) * len(text) // _SAMPLE)
    return _short(text) if len(text) <= _SHORT else _count(text)


def _count(text: str) -> int:
    pieces = _PIECES.findall(text)
    if text.isascii():
        return len(pieces)
    wide = [len(piece.encode("utf-8", "replace")) / 3 for piece in pieces if not piece.isascii()]
    return math.ceil(len(pieces) - len(wide) + sum(max(0.5, size) for size in wide) - 1e-3)


# System messages, passages and answers come again and again.
_short = lru_cache(maxsize=2048)(_count)


def prompt_tokens(prompt: Prompt) -> int:
    """Returns about how many tokens a prompt has, with its chat template."""
    return sum(count_tokens(message.content) + _TURN for message in prompt.messages)
