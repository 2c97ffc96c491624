"""The request for label probabilities: how it is sent, joined with others, split again, priced, and kept by label.

Each label's probability is kept under a key of its own, so that a guard and a scorer share it though they ask about it
together with other labels. Only where labels may begin with the same token, so that their probabilities depend on
each other, all labels of the call are part of the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ragguard.engines.account import Cost
from ragguard.engines.base import Engine, EngineInfo, LabelMode, LabelProbs, Prompt
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
class LabelRequest(Request[LabelProbs]):
    """A request for the probability of each label as what follows each prompt."""

    prompts: tuple[Prompt, ...]
    labels: tuple[str, ...]
    mode: LabelMode | None = None
    deadline: float | None = None
    priority: int = 0

    @property
    def output_tokens(self) -> int:
        """The most tokens that the model writes for one prompt: the first one identifies all labels."""
        return 1

    @property
    def repeatable(self) -> bool:
        """True: equal prompts have equal probabilities."""
        return True

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(self.labels)

    async def ask(self, engine: Engine) -> LabelProbs:
        reply = await engine.label_probs(self.prompts, self.labels, self.mode, self.deadline, self.priority)
        given = (reply.bound, reply.stderr)
        for numbers in (reply.p, *(array for array in given if array is not None)):
            if np.shape(numbers) != (len(self.prompts), len(self.labels)):
                raise EngineProtocolError(
                    f"{len(self.prompts)} prompts with {len(self.labels)} labels were asked; "
                    f"the engine gave numbers of shape {np.shape(numbers)}"
                )
        return reply

    def about(self, prompts: Sequence[Prompt]) -> LabelRequest:
        return replace(self, prompts=tuple(prompts))

    def empty(self) -> LabelProbs:
        return LabelProbs(np.zeros((0, len(self.labels))), mode=self.mode or "first_token")

    def gathered(self, replies: Sequence[LabelProbs], seconds: float) -> LabelProbs:
        bounds = [
            np.zeros(one.p.shape, dtype=np.bool_) if one.bound is None else one.bound for one in replies
        ]
        stderr = [one.stderr for one in replies if one.stderr is not None]
        return LabelProbs(
            np.concatenate([one.p for one in replies]),
            exact=all(one.exact for one in replies),
            mode=replies[0].mode,
            usage=replace(sum((one.usage for one in replies), Usage()), seconds=seconds),
            bound=np.concatenate(bounds) if any(one.bound is not None for one in replies) else None,
            stderr=np.concatenate(stderr) if len(stderr) == len(replies) else None,
            truncated=cuts_together(replies),
        )

    def group(self, info: EngineInfo | None) -> Hashable:
        """Returns a key that is equal for requests that may go out as one. Their labels may differ where one token
        identifies all labels: more of them cost such an engine nothing and change no number."""
        one_token_decides = (
            info is not None
            and (self.mode or info.mode) == "first_token"
            and "exact_labels" in info.capabilities
        )
        return LabelRequest, self.mode, self.priority, None if one_token_decides else self.labels

    def joined(self, others: Sequence[Request[LabelProbs]]) -> LabelRequest:
        """Returns one request about all prompts with the labels of all requests; each request then takes its own."""
        requests = [self, *(other for other in others if isinstance(other, LabelRequest))]
        labels = dict.fromkeys(label for request in requests for label in request.labels)
        prompts = tuple(prompt for request in requests for prompt in request.prompts)
        return replace(self, prompts=prompts, labels=tuple(labels), deadline=latest(requests))

    def share(self, reply: LabelProbs, whole: Request[LabelProbs], first: int) -> LabelProbs:
        """Returns the rows and columns of the reply to `whole` that answer this request."""
        last = first + len(self.prompts)
        asked = whole.labels if isinstance(whole, LabelRequest) else self.labels
        columns = [asked.index(label) for label in self.labels]
        bound = None if reply.bound is None else reply.bound[first:last, columns]
        exact = reply.exact
        if bound is not None and reply.stderr is None:
            # Bounds are known value by value: these rows may be exact where their neighbours are not.
            exact = not bound.any()
        return replace(
            reply,
            p=reply.p[first:last, columns],
            exact=exact,
            bound=bound,
            stderr=None if reply.stderr is None else reply.stderr[first:last, columns],
            truncated=cuts_between(reply.truncated, first, last),
            usage=usage_share(reply.usage, first, last, len(whole.prompts)),
        )

    def is_independent(self, reply: LabelProbs) -> bool:
        """False where labels were distinguished by all their tokens, which fewer labels may not need."""
        return reply.mode == "first_token"

    def cost(self, info: EngineInfo, prompt_tokens: float) -> Cost:
        times, size = info.label_requests, len(self.prompts)
        if (self.mode or info.mode) == "sequence":
            # Each label is scored token by token, each time after the whole prompt.
            prompt_tokens *= sum(len(label.encode("utf-8", "replace")) for label in self.labels)
        requests = 1 if "batch" in info.capabilities else times * size
        return Cost(requests, prompt_tokens * times, float(info.label_tokens * size))

    def keyed(self, info: EngineInfo) -> LabelKeys:
        """Returns the request with a key for each prompt and label."""
        return LabelKeys(self, info)


class LabelKeys:
    """A label request with a key for each prompt and label, with the methods of `Keyed`.

    A value is `(p, exact, mode, bound, standard error, tokens that were cut from the prompt)`, as in LabelProbs.
    """

    def __init__(self, request: LabelRequest, info: EngineInfo) -> None:
        self._request = request
        self._distinct = list(dict.fromkeys(request.prompts))
        labels = request.labels
        # Only in a request without a mode may a label's probability depend on the others.
        self._together = request.mode is None and info.mode == "first_token" and _may_begin_alike(labels)
        company = sorted(labels) if self._together else ()
        names = ["\0".join((label, *company)) for label in labels]
        stem = f"{info.fingerprint} label_probs {request.mode or info.mode}"
        self.keys: list[bytes] = []
        """The keys of the first prompt's labels, then of the second's, and so on."""
        for prompt in self._distinct:
            digest = prompt_digest(stem, prompt)
            self.keys += [_with(digest, name) for name in names]

    def missing(self, keys: Sequence[bytes]) -> list[Request[LabelProbs]]:
        """Returns the requests for these keys: prompts that lack the same labels go together."""
        request, lacking, width = self._request, frozenset(keys), len(self._request.labels)
        alike: dict[tuple[int, ...], list[Prompt]] = {}
        for row, prompt in enumerate(self._distinct):
            columns = tuple([at for at in range(width) if self.keys[row * width + at] in lacking])
            if columns:
                alike.setdefault(tuple(range(width)) if self._together else columns, []).append(prompt)
        return [
            replace(request, prompts=tuple(prompts), labels=tuple([request.labels[at] for at in columns]))
            for columns, prompts in alike.items()
        ]

    def values(self, request: Request[LabelProbs], reply: LabelProbs) -> dict[bytes, Value]:
        assert isinstance(request, LabelRequest)
        width = len(self._request.labels)
        columns = [self._request.labels.index(label) for label in request.labels]
        row_of = {prompt: row for row, prompt in enumerate(self._distinct)}
        return {
            self.keys[row_of[prompt] * width + column]: _value(reply, at, label)
            for at, prompt in enumerate(request.prompts)
            for label, column in enumerate(columns)
        }

    def reply(self, found: Mapping[bytes, Value], usage: Usage) -> LabelProbs:
        """Returns the reply to the whole request, also for prompts that were asked twice."""
        width = len(self._request.labels)
        known = [found[key] for key in self.keys]
        row_of = {prompt: known[at * width : (at + 1) * width] for at, prompt in enumerate(self._distinct)}
        rows = [row_of[prompt] for prompt in self._request.prompts]
        shape = (len(rows), width)
        p, exact, mode, bound, stderr, _ = zip(*(value for row in rows for value in row), strict=True)
        return LabelProbs(
            np.array(p, dtype=np.float64).reshape(shape),
            exact=all(exact),
            mode=mode[0],
            usage=usage,
            bound=None if set(bound) == {None} else np.array(bound, dtype=np.bool_).reshape(shape),
            stderr=None if set(stderr) == {None} else np.array([e or 0.0 for e in stderr]).reshape(shape),
            truncated={index: row[0][-1] for index, row in enumerate(rows) if row[0][-1]},
        )

    def weight(self, value: Value) -> int:
        """Returns how many label probabilities take as much memory: one."""
        return 1

    def encoded(self, value: Value) -> Any:
        return value

    def decoded(self, data: Any) -> Value:
        p, exact, mode, bound, stderr, cut = data
        return p, exact, mode, bound, stderr, cut


def _value(reply: LabelProbs, row: int, column: int) -> Value:
    """Returns one value of a reply. Where bounds are known one by one, so is what is exact."""
    bound = None if reply.bound is None else bool(reply.bound[row, column])
    stderr = None if reply.stderr is None else float(reply.stderr[row, column])
    exact = not bound if bound is not None and stderr is None else reply.exact
    return float(reply.p[row, column]), exact, reply.mode, bound, stderr, reply.truncated.get(row, 0)


def _may_begin_alike(labels: Sequence[str]) -> bool:
    """True where two labels may have one first token: only if they have one first byte."""
    return len({label.strip().encode("utf-8", "surrogatepass")[:1] for label in labels}) < len(labels)


def _with(digest: hashlib._Hash, label: str) -> bytes:
    branch = digest.copy()
    branch.update(b"\0" + label.encode("utf-8", "surrogatepass"))
    return branch.digest()
