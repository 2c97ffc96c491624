"""The request for label probabilities: how it is sent, joined with others, split again and kept.

An answer is kept with all labels of its question, in their order. Requests with other labels are joined where one token
identifies each label.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ragguard.engines.base import Engine, EngineInfo, LabelMode, LabelProbs, Prompt
from ragguard.engines.requests.request import Request, Value, cuts_of
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

    def is_typed(self, info: EngineInfo) -> bool:
        """Returns whether the engine answers the prompts as typed questions: those about one state in one request."""
        typed = info.capabilities & {"decisions", "typed_questions"}
        return bool(typed) and all(prompt.options for prompt in self.prompts)

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

    def group(self, info: EngineInfo | None) -> Hashable:
        """Returns a key that is equal for requests that may go out as one. Their labels may differ where one token
        identifies each label: more of them cost such an engine nothing and change no number. So may those of typed
        questions, each of which is answered for its own options."""
        any_labels = False
        if info is not None:
            first_token = (self.mode or info.mode) == "first_token" and "decisions" not in info.capabilities
            any_labels = self.is_typed(info) or (first_token and "exact_labels" in info.capabilities)
        return replace(self, prompts=(), labels=() if any_labels else self.labels, deadline=None)

    def joined(self, others: Sequence[Request[LabelProbs]]) -> LabelRequest:
        """Returns one request about all prompts with the labels of all requests."""
        labels = dict.fromkeys(self.labels)
        for other in others:
            labels |= dict.fromkeys(other.labels if isinstance(other, LabelRequest) else ())
        # The base class's method cannot be called by `super()` in a dataclass with slots.
        return replace(Request.joined(self, others), labels=tuple(labels))

    def taken(self, values: Sequence[Value], whole: Request[LabelProbs]) -> Sequence[Value]:
        """Returns the values of this request's own labels."""
        asked = whole.labels if isinstance(whole, LabelRequest) else self.labels
        if asked == self.labels:
            return values
        at = [asked.index(label) for label in self.labels]
        # Labels differ only where all are exact: there are no bounds and no standard errors.
        return [(tuple([p[i] for i in at]), *rest) for p, *rest in values]

    def stem(self, info: EngineInfo) -> str:
        return f"{info.fingerprint} label_probs {self.mode or info.mode} {self.mode is None} {self.labels!r}"

    def values(self, reply: LabelProbs) -> list[Value]:
        """Returns `(p, exact, mode, bound, standard error, tokens cut)` for each prompt, as in LabelProbs."""
        bounds = (
            [None] * len(reply.p) if reply.bound is None else [tuple(row) for row in reply.bound.tolist()]
        )
        stderr = (
            [None] * len(reply.p) if reply.stderr is None else [tuple(row) for row in reply.stderr.tolist()]
        )
        return [
            (
                tuple(p),
                # Bounds are known value by value: a row may be exact where its neighbours are not.
                reply.exact if bound is None or error is not None else not any(bound),
                reply.mode,
                bound,
                error,
                reply.truncated.get(row, 0),
            )
            for row, (p, bound, error) in enumerate(zip(reply.p.tolist(), bounds, stderr, strict=True))
        ]

    def reply(self, values: Sequence[Value], usage: Usage) -> LabelProbs:
        if not values:
            return LabelProbs(np.zeros((0, len(self.labels))), mode=self.mode or "first_token", usage=usage)
        p, exact, modes, bounds, stderr, _ = zip(*values, strict=True)
        zeros = (0.0,) * len(self.labels)
        return LabelProbs(
            np.array(p, dtype=np.float64),
            exact=all(exact),
            mode=modes[0],
            usage=usage,
            bound=np.array([row or zeros for row in bounds], dtype=np.bool_) if any(bounds) else None,
            stderr=np.array([row or zeros for row in stderr]) if any(stderr) else None,
            truncated=cuts_of(values),
        )

    def weight(self, value: Value) -> int:
        return len(self.labels)

    def decoded(self, data: Any) -> Value:
        p, exact, mode, bound, stderr, cut = data
        return tuple(p), exact, mode, bound and tuple(bound), stderr and tuple(stderr), cut
