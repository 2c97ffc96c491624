"""The engine protocol, and the values that go into an engine and come out of it.

`sample` asks for answers with the log-probabilities of their tokens; `label_probs` asks for the probability of each
of some labels as the next words. An engine answers both in batches, and describes itself. A layer (cache, retry, …)
wraps an engine and is an engine. This file knows no HTTP, no model and no probe.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import (
    Any,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    runtime_checkable,
)

import numpy as np
from numpy.typing import NDArray

from ragguard.errors import InvalidInput
from ragguard.records import Usage

T = TypeVar("T")
Role = Literal["system", "user", "assistant"]
LabelMode = Literal["first_token", "sequence"]
HowAnswered = Literal["first_token", "sequence", "sampled"]


class Message(NamedTuple):
    """A message of a conversation: its role and its text."""

    role: Role
    content: str


class Span(NamedTuple):
    """The part of a message, from character `start` to `end`, that may be cut when the prompt does not fit."""

    message: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation that the model is to continue. Equal prompts have equal hashes, and are asked once."""

    messages: tuple[Message, ...]
    cuttable: tuple[Span, ...] = ()
    """The spans that may be cut, in the order in which they are cut. Empty: a prompt that is too long is an error."""
    text: str = ""
    """The text after the prompt whose probability is asked for; `continuations` sets it, the other verbs ignore it."""
    options: tuple[tuple[str, str], ...] = ()
    """The labels of the question with the meaning of each, for models that are asked typed questions. Others read the
    prompt alone."""

    @property
    def size(self) -> int:
        """The bytes of the messages."""
        return sum(len(message.content.encode("utf-8", "replace")) for message in self.messages)

    def digest(self, stem: str) -> bytes:
        """Returns the digest of all that the answer depends on: `stem`, and the prompt with the spans that may be
        cut."""
        digest = hashlib.sha256(stem.encode())
        for message in self.messages:
            content = message.content.encode("utf-8", "surrogatepass")
            digest.update(f"\0{message.role} {len(content)} ".encode())
            digest.update(content)
        digest.update(repr([tuple(span) for span in self.cuttable]).encode())
        if self.options:
            digest.update(b"\0of " + repr(self.options).encode("utf-8", "surrogatepass"))
        if self.text:
            digest.update(b"\0then " + self.text.encode("utf-8", "surrogatepass"))
        return digest.digest()

    def without_cuts(self) -> Prompt:
        """Returns the same prompt without spans that may be cut."""
        return replace(self, cuttable=())


PromptLike: TypeAlias = str | Prompt | Sequence[Message] | Sequence[Mapping[str, str]]


def as_prompt(value: PromptLike) -> Prompt:
    """Returns a Prompt made of a string (one user message), of messages, or of mappings with `role` and `content`."""
    if isinstance(value, Prompt):
        return value
    if isinstance(value, str):
        return Prompt((Message("user", value),))
    try:
        messages = tuple(
            Message(*turn) if isinstance(turn, tuple) else Message(cast(Role, turn["role"]), turn["content"])
            for turn in value
        )
    except (TypeError, KeyError, IndexError) as error:
        raise InvalidInput("prompt", value, "a string, or messages with `role` and `content`") from error
    if not messages or not all(role in get_args(Role) and isinstance(text, str) for role, text in messages):
        allowed = "messages, each with a role (system, user or assistant) and text as its content"
        raise InvalidInput("prompt", value, allowed)
    return Prompt(messages)


def as_prompts(values: Sequence[PromptLike]) -> list[Prompt]:
    """Returns the prompts of one call. A string in place of a list is refused: each letter would be a prompt."""
    if isinstance(values, str | Prompt) or not isinstance(values, Iterable):
        raise InvalidInput("prompts", values, "a list of prompts")
    return [as_prompt(value) for value in values]


def as_continued(prompts: Sequence[PromptLike], texts: Sequence[Sequence[str]]) -> list[list[Prompt]]:
    """Returns each prompt once for each of its texts, with the text behind it."""
    asked = as_prompts(prompts)
    wrong = isinstance(texts, str) or len(texts) != len(asked)
    if wrong or any(
        isinstance(row, str) or not all(isinstance(text, str) and text for text in row) for row in texts
    ):
        raise InvalidInput("texts", texts, f"{len(asked)} lists of texts, one for each prompt, no text empty")
    return [
        [Prompt(prompt.messages, prompt.cuttable, text) for text in row]
        for prompt, row in zip(asked, texts, strict=True)
    ]


def as_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """Returns the labels of one question if there is at least one, all differ and none is empty."""
    given = () if isinstance(labels, str) or not isinstance(labels, Iterable) else tuple(labels)
    if not given or len(set(given)) < len(given) or not all(isinstance(x, str) and x.strip() for x in given):
        raise InvalidInput("labels", labels, "a list of different texts, at least one, none empty")
    return given


def as_turns(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Returns messages as chat templates and servers take them."""
    return [{"role": message.role, "content": message.content} for message in messages]


def folded(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Returns the messages with the system text before the first user turn: some templates have no system turn."""
    if not messages or messages[0].role != "system":
        return messages
    system, *rest = messages
    if rest and rest[0].role == "user":
        return (Message("user", f"{system.content}\n\n{rest[0].content}"), *rest[1:])
    return (Message("user", system.content), *rest)


@dataclass(frozen=True, slots=True)
class Sample:
    """An answer that an engine has sampled."""

    text: str
    logprobs: tuple[float, ...]
    """The log-probability of each token of `text` under the model itself (temperature 1); empty where the server
    shows none. The end-of-answer token is left out, unless nothing else was sampled."""
    finished: bool = True
    """False when the answer was cut at `max_tokens`."""


@dataclass(frozen=True, slots=True)
class AnswerRows(Sequence[list[T]], Generic[T]):
    """A list of answers for each prompt, in the order of the prompts."""

    rows: list[list[T]]
    usage: Usage = field(default_factory=Usage)
    truncated: dict[int, int] = field(default_factory=dict)
    """Prompt index → the most tokens that were cut from it to make it fit."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> list[T]:  # type: ignore[override] # slices are not worth an overload
        return self.rows[index]


class Samples(AnswerRows[Sample]):
    """The sampled answers to each prompt."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Continuation:
    """A given text after a prompt, with its probability."""

    text: str
    logprobs: tuple[float, ...]
    """The log-probability of each token of the text; what ends an answer is not among them."""
    end: float | None = None
    """The log-probability that the answer ends behind the text; None where the engine does not tell it."""

    @property
    def mean(self) -> float:
        """The mean log-probability of a token."""
        return sum(self.logprobs) / len(self.logprobs)

    @property
    def total(self) -> float:
        """The log-probability of the whole text, whatever follows it."""
        return sum(self.logprobs)


class Continuations(AnswerRows[Continuation]):
    """The given texts of each prompt with their probabilities."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class LabelProbs:
    """The probability of each label as the next words of each prompt; NumPy takes it as an array."""

    p: NDArray[np.float64]
    """(prompts, labels), the model's own probabilities, not renormalised over the labels."""
    exact: bool = True
    """False when some value is a bound or an estimate: see `bound` and `stderr`."""
    mode: HowAnswered = "first_token"
    usage: Usage = field(default_factory=Usage)
    bound: NDArray[np.bool_] | None = None
    """True where the label was outside what the server shows: p is then an upper bound."""
    stderr: NDArray[np.float64] | None = None
    """The standard error of p, where it was estimated by sampling."""
    truncated: dict[int, int] = field(default_factory=dict)
    """Prompt index → tokens that were cut from it to make it fit."""

    @property
    def mass(self) -> NDArray[np.float64]:
        """The sum of the probabilities of all labels, (prompts,); small for a model that writes something else."""
        return np.asarray(self.p.sum(axis=-1), dtype=np.float64)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.p, dtype=dtype, copy=True if copy is None else copy)

    def __len__(self) -> int:
        return len(self.p)


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The description of an engine: its model, its mode and its capabilities."""

    model: str
    kind: str
    """`nano`, `vllm`, `openai`, `hf`, `vllm-inprocess`, `decisions`."""
    fingerprint: str
    """Model and mode (and revision where known): equal fingerprints give equal numbers."""
    mode: LabelMode = "first_token"
    """The mode of `label_probs` where the call names none; `sequence` if the abstention label shares its first
    token with a word."""
    prompts: str = "default"
    """The prompt set the model wants."""
    context: int | None = None
    """The longest prompt plus answer, in tokens."""
    capabilities: frozenset[str] = frozenset()
    """The abilities, out of exact_labels, sequence, sample_logprobs, continuations, batch, n_samples, priority, seed,
    top_logprobs, decisions (it answers typed questions, and writes nothing), typed_questions (it answers them beside
    everything else), label_mass (it tells how much of its probability lies on the options of a typed question)."""
    location: str = ""
    """The address or the place of the model, without credentials."""
    label_requests: int = 1
    """How many requests the labels of one prompt take, where an engine takes one prompt a request."""
    label_tokens: int = 1
    """How many tokens the model writes at most to answer the labels of one prompt."""
    thinking_tokens: int = 0
    """How many tokens the model may write before each answer."""
    notes: tuple[str, ...] = ()
    """Sentences about features that the model or its server lacks, and what to change to have them."""


@runtime_checkable
class Engine(Protocol):
    """A model that gives probabilities, or a layer around one.

    `deadline` is an instant of `time.monotonic()`; past it the call raises `EngineTimeout`. A lower `priority` goes
    first. With a `seed`, the answer to a prompt depends only on the seed and the prompt, never on what else is in the
    call.
    """

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
        """Draws `n` answers to each prompt."""
        ...

    async def label_probs(
        self,
        prompts: Sequence[PromptLike],
        labels: Sequence[str],
        mode: LabelMode | None = None,
        deadline: float | None = None,
        priority: int = 0,
    ) -> LabelProbs:
        """Returns, for each prompt, the probability that each label follows it."""
        ...

    async def info(self) -> EngineInfo:
        """Returns the description of this engine; a server is asked for it the first time."""
        ...

    async def aclose(self) -> None:
        """Releases connections, threads and memory. Safe to call twice."""
        ...
