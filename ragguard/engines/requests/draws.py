"""The request for sampled answers: how it is sent, joined with others, split again, priced, and kept for each prompt.

Answers that are drawn without a seed differ each time: they are never kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragguard.engines.account import Cost
from ragguard.engines.base import Engine, EngineInfo, Prompt, Sample, Samples
from ragguard.engines.requests.request import (
    Request,
    Value,
    cuts_between,
    cuts_together,
    latest,
    prompt_digest,
    usage_share,
)
from ragguard.errors import EngineProtocolError
from ragguard.records import Usage


@dataclass(frozen=True, slots=True)
class DrawRequest(Request[Samples]):
    """A request for `n` sampled answers to each prompt."""

    prompts: tuple[Prompt, ...]
    n: int
    max_tokens: int
    temperature: float
    seed: int | None = None
    deadline: float | None = None
    priority: int = 0

    @property
    def output_tokens(self) -> int:
        return self.n * self.max_tokens

    @property
    def repeatable(self) -> bool:
        """True where the same request has the same reply: with a seed."""
        return self.seed is not None

    async def ask(self, engine: Engine) -> Samples:
        reply = await engine.sample(
            self.prompts, self.n, self.max_tokens, self.temperature, self.seed,
            deadline=self.deadline, priority=self.priority,
        )  # fmt: skip
        if len(reply) != len(self.prompts):
            raise EngineProtocolError(
                f"{len(self.prompts)} prompts were asked; the engine answered {len(reply)}"
            )
        return reply

    def about(self, prompts: Sequence[Prompt]) -> DrawRequest:
        return replace(self, prompts=tuple(prompts))

    def empty(self) -> Samples:
        return Samples([])

    def gathered(self, replies: Sequence[Samples], seconds: float) -> Samples:
        usage = sum((one.usage for one in replies), Usage())
        answers = [row for one in replies for row in one.answers]
        return Samples(answers, replace(usage, seconds=seconds), cuts_together(replies))

    def group(self, info: EngineInfo | None) -> Hashable:
        """Returns a key that is equal for requests that may go out as one; they may differ in prompts and deadline."""
        return replace(self, prompts=(), deadline=None)

    def joined(self, others: Sequence[Request[Samples]]) -> DrawRequest:
        """Returns one request about the prompts of this request and of others of its group."""
        requests: list[Request[Samples]] = [self, *others]
        prompts = tuple(prompt for request in requests for prompt in request.prompts)
        return replace(self, prompts=prompts, deadline=latest(requests))

    def share(self, reply: Samples, whole: Request[Samples], first: int) -> Samples:
        """Returns the answers in the reply to `whole` that answer this request."""
        last = first + len(self.prompts)
        return Samples(
            reply.answers[first:last],
            usage_share(reply.usage, first, last, len(whole.prompts)),
            cuts_between(reply.truncated, first, last),
        )

    def is_independent(self, reply: Samples) -> bool:
        """True: what a prompt yields never depends on what else is asked."""
        return True

    def cost(self, info: EngineInfo, prompt_tokens: float) -> Cost:
        times, size = 1 if "n_samples" in info.capabilities else self.n, len(self.prompts)
        written = self.output_tokens + self.n * info.thinking_tokens
        requests = 1 if "batch" in info.capabilities else times * size
        return Cost(requests, prompt_tokens * times, float(written * size))

    def keyed(self, info: EngineInfo) -> DrawKeys:
        """Returns the request with a key for the answers to each prompt."""
        return DrawKeys(self, info)


class DrawKeys:
    """A request for answers with a key for each prompt, with the methods of `Keyed`.

    A value is `(samples, tokens cut from the prompt)`.
    """

    def __init__(self, request: DrawRequest, info: EngineInfo) -> None:
        self._request = request
        stem = f"{info.fingerprint} sample {request.n} {request.max_tokens} {request.temperature!r} {request.seed}"
        self.keys = [prompt_digest(stem, prompt).digest() for prompt in request.prompts]

    def missing(self, keys: Sequence[bytes]) -> list[Request[Samples]]:
        """Returns one request for the answers that are not known."""
        prompt_of = dict(zip(self.keys, self._request.prompts, strict=True))
        return [self._request.about([prompt_of[key] for key in keys])]

    def values(self, request: Request[Samples], reply: Samples) -> dict[bytes, Value]:
        """Returns the answers to each prompt of `missing`'s request, by their keys."""
        key_of = dict(zip(self._request.prompts, self.keys, strict=True))
        return {
            key_of[prompt]: (tuple(row), reply.truncated.get(index, 0))
            for index, (prompt, row) in enumerate(zip(request.prompts, reply.answers, strict=True))
        }

    def reply(self, found: Mapping[bytes, Value], usage: Usage) -> Samples:
        values = [found[key] for key in self.keys]
        truncated = {index: cut for index, (_, cut) in enumerate(values) if cut}
        return Samples([list(samples) for samples, _ in values], usage, truncated)

    def weight(self, value: Value) -> int:
        samples, _ = value
        return 1 + sum(len(sample.logprobs) for sample in samples) // 8

    def encoded(self, value: Value) -> Any:
        samples, cut = value
        return [(sample.text, sample.logprobs, sample.finished) for sample in samples], cut

    def decoded(self, data: Any) -> Value:
        rows, cut = data
        return tuple(Sample(text, tuple(logprobs), finished) for text, logprobs, finished in rows), cut
