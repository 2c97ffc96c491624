"""The request for sampled answers: how it is sent, joined with others, split again, and kept for each prompt.

Answers that are drawn without a seed differ each time: they are never kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragguard.engines.base import Engine, EngineInfo, Prompt, Sample, Samples
from ragguard.engines.requests.request import Request, Value, cuts_of
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

    def halves(self) -> tuple[DrawRequest, DrawRequest] | None:
        """Returns two requests for half of the prompts each; for one prompt, two for half of its answers each, with
        the seeds that a server gives to its own choices."""
        if len(self.prompts) > 1:
            return Request.halves(self)
        if self.n == 1 or self.temperature == 0:
            return None
        first, seed = self.n // 2, self.seed
        rest = replace(self, n=self.n - first, seed=None if seed is None else seed + first)
        return replace(self, n=first), rest

    def rejoined(self, replies: Sequence[Samples]) -> Samples:
        """Returns one reply from the replies to the halves."""
        whole = Request.rejoined(self, replies)
        if len(self.prompts) > 1:
            return whole
        rows = [values for reply in replies for values in self.values(reply)]
        joined = tuple(sample for samples, _ in rows for sample in samples), max(cut for _, cut in rows)
        return self.reply([joined], replace(whole.usage, prompts=1))

    def stem(self, info: EngineInfo) -> str:
        return f"{info.fingerprint} sample {self.n} {self.max_tokens} {self.temperature!r} {self.seed}"

    def values(self, reply: Samples) -> list[Value]:
        """Returns `(samples, tokens cut)` for each prompt."""
        return [(tuple(row), reply.truncated.get(index, 0)) for index, row in enumerate(reply.answers)]

    def reply(self, values: Sequence[Value], usage: Usage) -> Samples:
        return Samples([list(samples) for samples, _ in values], usage, cuts_of(values))

    def weight(self, value: Value) -> int:
        samples, _ = value
        return 1 + sum(len(sample.logprobs) for sample in samples) // 8

    def encoded(self, value: Value) -> Any:
        samples, cut = value
        return [(sample.text, sample.logprobs, sample.finished) for sample in samples], cut

    def decoded(self, data: Any) -> Value:
        rows, cut = data
        return tuple(Sample(text, tuple(logprobs), finished) for text, logprobs, finished in rows), cut
