"""The request for the probabilities of given texts: each prompt carries the text that follows it.

How it is sent, joined with others, split again, and kept for each prompt with its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ragguard.engines.base import Continuation, Engine, EngineInfo, Prompt
from ragguard.engines.requests.request import Request, Value, cuts_of
from ragguard.errors import EngineRejected
from ragguard.records import Usage


@dataclass(frozen=True, slots=True)
class ContinuationReply:
    """One text with its probability for each prompt of the request."""

    found: list[Continuation]
    usage: Usage = field(default_factory=Usage)
    truncated: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.found)


@dataclass(frozen=True, slots=True)
class ContinuationRequest(Request[ContinuationReply]):
    """A request for the log-probabilities of the text behind each prompt."""

    prompts: tuple[Prompt, ...]
    deadline: float | None = None
    priority: int = 0

    @property
    def output_tokens(self) -> int:
        """The most tokens that the model writes for one prompt: a server writes one that nobody needs."""
        return 1

    @property
    def repeatable(self) -> bool:
        """True: equal prompts with equal texts have equal probabilities."""
        return True

    async def ask(self, engine: Engine) -> ContinuationReply:
        """Asks an engine from elsewhere, which has the verb if it has an attribute of its name."""
        verb = getattr(engine, "continuations", None)
        if verb is None:
            raise EngineRejected(
                f"{type(engine).__name__} has no method `continuations`, so it cannot tell how probable a given text "
                "is: use smol, hf:MODEL, or a vLLM server"
            )
        reply = await verb(
            [prompt.without_cuts() for prompt in self.prompts], [[p.text] for p in self.prompts]
        )
        return ContinuationReply([row[0] for row in reply], getattr(reply, "usage", Usage()))

    def stem(self, info: EngineInfo) -> str:
        return f"{info.fingerprint} continuation"

    def values(self, reply: ContinuationReply) -> list[Value]:
        """Returns `(the text's log-probabilities, tokens cut)` for each prompt."""
        return [(one.logprobs, reply.truncated.get(index, 0)) for index, one in enumerate(reply.found)]

    def reply(self, values: Sequence[Value], usage: Usage) -> ContinuationReply:
        found = [
            Continuation(prompt.text, logprobs)
            for prompt, (logprobs, _) in zip(self.prompts, values, strict=False)
        ]
        return ContinuationReply(found, usage, cuts_of(values))

    def weight(self, value: Value) -> int:
        return 1 + len(value[0]) // 8

    def decoded(self, data: Any) -> Value:
        logprobs, cut = data
        return tuple(float(one) for one in logprobs), cut
