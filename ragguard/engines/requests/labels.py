"""The request for label probabilities: how it is sent, joined with others, split again, and kept for each label.

Each label's probability is kept under a key of its own, so that a guard and a scorer share it though they ask about it
together with other labels. Only where labels may begin with the same token, so that their probabilities depend on
each other, all labels of the call are part of the key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from ragguard.engines.base import Engine, EngineInfo, HowAnswered, LabelMode, LabelProbs, Prompt
from ragguard.engines.requests.base import Request, cuts_between, latest, prompt_digest, usage_share
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
        """The most tokens that the model writes for one prompt: the first one tells all labels."""
        return 1

    @property
    def completions(self) -> int:
        """How many completions of one prompt the request asks for."""
        return 1

    @property
    def repeatable(self) -> bool:
        """True: equal prompts have equal probabilities."""
        return True

    async def ask(self, engine: Engine) -> LabelProbs:
        """Puts the request to an engine by its verb, and checks the shape of the reply."""
        reply = await engine.label_probs(self.prompts, self.labels, self.mode, self.deadline, self.priority)
        if np.shape(reply.p) != (len(self.prompts), len(self.labels)):
            raise EngineProtocolError(
                f"{len(self.prompts)} prompts with {len(self.labels)} labels were asked; "
                f"the engine gave numbers of shape {np.shape(reply.p)}"
            )
        return reply

    def about(self, prompts: Sequence[Prompt]) -> LabelRequest:
        """Returns this request with other prompts."""
        return replace(self, prompts=tuple(prompts))

    def empty(self) -> LabelProbs:
        """The reply to a request about no prompts."""
        return LabelProbs(np.zeros((0, len(self.labels))), mode=self.mode or "first_token")

    def gathered(self, replies: Sequence[LabelProbs], seconds: float) -> LabelProbs:
        """Returns one reply, put together from the replies about consecutive parts of the prompts."""
        bounds = [
            np.zeros(one.p.shape, dtype=np.bool_) if one.bound is None else one.bound for one in replies
        ]
        stderr = [one.stderr for one in replies if one.stderr is not None]
        starts = np.cumsum([0, *(len(one) for one in replies)]).tolist()
        return LabelProbs(
            np.concatenate([one.p for one in replies]),
            exact=all(one.exact for one in replies),
            mode=replies[0].mode,
            usage=replace(sum((one.usage for one in replies), Usage()), seconds=seconds),
            bound=np.concatenate(bounds) if any(one.bound is not None for one in replies) else None,
            stderr=np.concatenate(stderr) if len(stderr) == len(replies) else None,
            truncated={
                start + index: cut
                for start, one in zip(starts, replies, strict=False)
                for index, cut in one.truncated.items()
            },
        )

    def group(self, *, any_labels: bool) -> Hashable:
        """Returns a key that is equal for requests that can be sent as one."""
        return LabelRequest, self.mode, self.priority, None if any_labels else self.labels

    def joined(self, others: Sequence[Request[LabelProbs]]) -> LabelRequest:
        """All prompts with the labels of all requests: each is answered for every label, and takes its own."""
        requests = [self, *(other for other in others if isinstance(other, LabelRequest))]
        labels = dict.fromkeys(label for request in requests for label in request.labels)
        prompts = tuple(prompt for request in requests for prompt in request.prompts)
        deadline = latest([request.deadline for request in requests])
        return replace(self, prompts=prompts, labels=tuple(labels), deadline=deadline)

    def share(self, reply: LabelProbs, whole: Request[LabelProbs], first: int) -> LabelProbs:
        """The rows and columns of the reply to `whole` that answer this request."""
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

    def keyed(self, info: EngineInfo) -> LabelKeys:
        """The keys under which the probabilities are kept: one for each prompt and label."""
        return LabelKeys(self, info)


@dataclass(frozen=True, slots=True)
class LabelValue:
    """The probability of one label after one prompt, as it is kept."""

    p: float
    exact: bool
    mode: HowAnswered
    bound: bool | None
    stderr: float | None
    cut: int
    weight: ClassVar[int] = 1

    @classmethod
    def of(cls, reply: LabelProbs, row: int, column: int) -> Self:
        """One value of a reply. Where bounds are known one by one, so is what is exact."""
        bound = None if reply.bound is None else bool(reply.bound[row, column])
        stderr = None if reply.stderr is None else float(reply.stderr[row, column])
        exact = not bound if bound is not None and stderr is None else reply.exact
        p, cut = float(reply.p[row, column]), reply.truncated.get(row, 0)
        return cls(p, exact, reply.mode, bound, stderr, cut)

    @property
    def packed(self) -> tuple[Any, ...]:
        """The value as a tuple of plain values, which the garbage collector does not look at."""
        return self.p, self.exact, self.mode, self.bound, self.stderr, self.cut

    @classmethod
    def unpacked(cls, packed: tuple[Any, ...]) -> Self:
        """The value from its tuple."""
        return cls(*packed)

    def encode(self) -> bytes:
        """The value as JSON."""
        return json.dumps(self.packed).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The value from JSON."""
        return cls(*json.loads(data))


class LabelKeys:
    """A label request taken apart into one key for each prompt and label."""

    value = LabelValue

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
        """The requests for these keys: prompts that lack the same labels go together."""
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

    def values(self, request: Request[LabelProbs], reply: LabelProbs) -> dict[bytes, LabelValue]:
        """The values in the reply to one of `missing`'s requests, by their keys."""
        assert isinstance(request, LabelRequest)
        width = len(self._request.labels)
        columns = [self._request.labels.index(label) for label in request.labels]
        row_of = {prompt: row for row, prompt in enumerate(self._distinct)}
        return {
            self.keys[row_of[prompt] * width + column]: LabelValue.of(reply, at, label)
            for at, prompt in enumerate(request.prompts)
            for label, column in enumerate(columns)
        }

    def reply(self, found: Mapping[bytes, LabelValue], usage: Usage) -> LabelProbs:
        """The reply to the whole request, also for prompts that were asked twice."""
        known, width = [found[key] for key in self.keys], len(self._request.labels)
        row_of = {prompt: known[at * width : (at + 1) * width] for at, prompt in enumerate(self._distinct)}
        rows = [row_of[prompt] for prompt in self._request.prompts]
        values = [value for row in rows for value in row]
        shape = (len(rows), width)
        bound = stderr = None
        if any(value.bound is not None for value in values):
            bound = np.array([bool(value.bound) for value in values]).reshape(shape)
        if any(value.stderr is not None for value in values):
            stderr = np.array([value.stderr or 0.0 for value in values]).reshape(shape)
        return LabelProbs(
            np.array([value.p for value in values], dtype=np.float64).reshape(shape),
            exact=all(value.exact for value in values),
            mode=values[0].mode,
            usage=usage,
            bound=bound,
            stderr=stderr,
            truncated={index: row[0].cut for index, row in enumerate(rows) if row[0].cut},
        )


def _may_begin_alike(labels: Sequence[str]) -> bool:
    """True where two labels may have one first token: only if they have one first byte."""
    return len({label.strip().encode("utf-8", "surrogatepass")[:1] for label in labels}) < len(labels)


def _with(digest: hashlib._Hash, label: str) -> bytes:
    branch = digest.copy()
    branch.update(b"\0" + label.encode("utf-8", "surrogatepass"))
    return branch.digest()
