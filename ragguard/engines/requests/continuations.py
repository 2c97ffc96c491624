"""The request for the probabilities of given texts: each prompt carries the text that follows it.

How it is sent, joined with others, split again, priced, and kept for each prompt with its text.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ragguard.engines.account import Cost
from ragguard.engines.base import Continuation, Engine, EngineInfo, Prompt
from ragguard.engines.requests.request import (
    Request,
    Value,
    cuts_between,
    cuts_together,
    latest,
    prompt_digest,
    usage_share,
)
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

    def about(self, prompts: Sequence[Prompt]) -> ContinuationRequest:
        return replace(self, prompts=tuple(prompts))

    def empty(self) -> ContinuationReply:
        return ContinuationReply([])

    def gathered(self, replies: Sequence[ContinuationReply], seconds: float) -> ContinuationReply:
        usage = sum((one.usage for one in replies), Usage())
        found = [each for one in replies for each in one.found]
        return ContinuationReply(found, replace(usage, seconds=seconds), cuts_together(replies))

    def group(self, info: EngineInfo | None) -> Hashable:
        """Returns a key that is equal for requests that may go out as one; they may differ in prompts and deadline."""
        return ContinuationRequest, self.priority

    def joined(self, others: Sequence[Request[ContinuationReply]]) -> ContinuationRequest:
        """Returns one request about the prompts of this request and of others of its group."""
        requests: list[Request[ContinuationReply]] = [self, *others]
        prompts = tuple(prompt for request in requests for prompt in request.prompts)
        return replace(self, prompts=prompts, deadline=latest(requests))

    def share(
        self, reply: ContinuationReply, whole: Request[ContinuationReply], first: int
    ) -> ContinuationReply:
        """Returns the texts in the reply to `whole` that answer this request."""
        last = first + len(self.prompts)
        return ContinuationReply(
            reply.found[first:last],
            usage_share(reply.usage, first, last, len(whole.prompts)),
            cuts_between(reply.truncated, first, last),
        )

    def is_independent(self, reply: ContinuationReply) -> bool:
        """True: the probability of a text never depends on what else is asked."""
        return True

    def cost(self, info: EngineInfo, prompt_tokens: float) -> Cost:
        written = sum(len(prompt.text) for prompt in self.prompts) / 2
        requests = 1 if "batch" in info.capabilities else len(self.prompts)
        return Cost(requests, prompt_tokens + written, float(len(self.prompts)))

    def keyed(self, info: EngineInfo) -> ContinuationKeys:
        """Returns the request with a key for each prompt and its text."""
        return ContinuationKeys(self, info)


class ContinuationKeys:
    """A request for given texts with a key for each, with the methods of `Keyed`.

    A value is `(the text's log-probabilities, tokens cut from the prompt)`.
    """

    def __init__(self, request: ContinuationRequest, info: EngineInfo) -> None:
        self._request = request
        stem = f"{info.fingerprint} continuation"
        self.keys = [prompt_digest(stem, prompt).digest() for prompt in request.prompts]

    def missing(self, keys: Sequence[bytes]) -> list[Request[ContinuationReply]]:
        """Returns one request for the texts that are not known."""
        prompt_of = dict(zip(self.keys, self._request.prompts, strict=True))
        return [self._request.about([prompt_of[key] for key in keys])]

    def values(self, request: Request[ContinuationReply], reply: ContinuationReply) -> dict[bytes, Value]:
        """Returns the log-probabilities of each text of `missing`'s request, by their keys."""
        key_of = dict(zip(self._request.prompts, self.keys, strict=True))
        return {
            key_of[prompt]: (one.logprobs, reply.truncated.get(index, 0))
            for index, (prompt, one) in enumerate(zip(request.prompts, reply.found, strict=True))
        }

    def reply(self, found: Mapping[bytes, Value], usage: Usage) -> ContinuationReply:
        values = [found[key] for key in self.keys]
        texts = [prompt.text for prompt in self._request.prompts]
        return ContinuationReply(
            [Continuation(text, logprobs) for text, (logprobs, _) in zip(texts, values, strict=True)],
            usage,
            {index: cut for index, (_, cut) in enumerate(values) if cut},
        )

    def weight(self, value: Value) -> int:
        return 1 + len(value[0]) // 8

    def encoded(self, value: Value) -> Any:
        return list(value[0]), value[1]

    def decoded(self, data: Any) -> Value:
        logprobs, cut = data
        return tuple(float(one) for one in logprobs), cut
