"""Labels: the request for their probabilities, and the checks of log-probabilities that models give.

`first_token` is the probability of the first token of a label (the paper's p(NO-RESPONSE)); `sequence` is the exact
probability of all tokens of the label, one after another: their product. An answer is kept with all labels of its
question, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import Engine, EngineInfo, LabelMode, LabelProbs
from ragguard.engines.requests import PromptRequest, Reply, Request, Value
from ragguard.errors import EngineProtocolError
from ragguard.text.language import ABSTENTION as ABSTENTION


@dataclass(frozen=True, slots=True)
class LabelRequest(PromptRequest):
    """A request for the probability of each label as what follows each prompt. Its values are `(p, exact, mode, bound,
    standard error, tokens cut)`, as in LabelProbs."""

    labels: tuple[str, ...]
    mode: LabelMode | None = None

    def written(self, info: EngineInfo) -> int:
        return 1 if self.is_typed(info) else info.label_tokens

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(self.labels)

    def takes_many(self, info: EngineInfo) -> bool:
        # The base class's method cannot be called by `super()` in a dataclass with slots.
        return Request.takes_many(self, info) or self.is_typed(info)

    def is_typed(self, info: EngineInfo) -> bool:
        typed = info.capabilities & {"decisions", "typed_questions"}
        return bool(typed) and all(prompt.options for prompt in self.prompts)

    async def ask(self, engine: Engine) -> Reply:
        probs = await engine.label_probs(self.prompts, self.labels, self.mode, self.deadline, self.priority)
        for numbers in (probs.p, probs.bound, probs.stderr):
            if numbers is not None and np.shape(numbers) != (len(self.prompts), len(self.labels)):
                raise EngineProtocolError(
                    f"{len(self.prompts)} prompts with {len(self.labels)} labels were asked; "
                    f"the engine gave numbers of shape {np.shape(numbers)}"
                )
        return self.read(probs)

    def group(self, info: EngineInfo) -> Hashable:
        """Returns a key that is equal for requests that may go out as one. Their labels may differ where one token
        identifies each label: more of them cost such an engine nothing and change no number. So may those of typed
        questions, each of which is answered for its own options."""
        first_token = (self.mode or info.mode) == "first_token" and "decisions" not in info.capabilities
        any_labels = self.is_typed(info) or (first_token and "exact_labels" in info.capabilities)
        return replace(self, prompts=(), labels=() if any_labels else self.labels, deadline=None)

    def merged(self, others: Sequence[Request]) -> Self:
        """Returns one request about all prompts with the labels of all requests."""
        labels = dict.fromkeys(self.labels)
        for other in others:
            labels |= dict.fromkeys(other.labels if isinstance(other, LabelRequest) else ())
        return replace(Request.merged(self, others), labels=tuple(labels))

    def own_values(self, values: Sequence[Value], whole: Request) -> Sequence[Value]:
        """Returns the values of this request's own labels."""
        asked = whole.labels if isinstance(whole, LabelRequest) else self.labels
        if asked == self.labels:
            return values
        at = [asked.index(label) for label in self.labels]
        # Labels differ only where all are exact: there are no bounds and no standard errors.
        return [(tuple([p[i] for i in at]), *rest) for p, *rest in values]

    def stem(self, info: EngineInfo) -> str:
        return f"{info.fingerprint} label_probs {self.mode or info.mode} {self.mode is None} {self.labels!r}"

    def read(self, probs: LabelProbs) -> Reply:
        """Returns the values of an engine's answer."""
        size = len(probs.p)
        rows = zip(probs.p.tolist(), _rows(probs.bound, size), _rows(probs.stderr, size), strict=True)
        values = [
            (
                tuple(p),
                # Bounds are known value by value: a row may be exact where its neighbours are not.
                probs.exact if bound is None or stderr is not None else not any(bound),
                probs.mode,
                bound,
                stderr,
                probs.truncated.get(index, 0),
            )
            for index, (p, bound, stderr) in enumerate(rows)
        ]
        return Reply(values, probs.usage)

    def answer(self, reply: Reply) -> LabelProbs:
        """Returns the answer as the verb gives it."""
        p, exact, modes, bounds, stderr, _ = zip(*reply.values, strict=True) if reply.values else [()] * 6
        zeros = (0.0,) * len(self.labels)
        return LabelProbs(
            np.array(p, dtype=np.float64).reshape(len(p), len(self.labels)),
            exact=all(exact),
            mode=modes[0] if modes else self.mode or "first_token",
            usage=reply.usage,
            bound=np.array([row or zeros for row in bounds], dtype=np.bool_) if any(bounds) else None,
            stderr=np.array([row or zeros for row in stderr]) if any(stderr) else None,
            truncated=reply.cuts,
        )


def _rows(numbers: NDArray[Any] | None, size: int) -> list[tuple[Any, ...] | None]:
    return [None] * size if numbers is None else [tuple(row) for row in numbers.tolist()]


CONTRASTS = ("No", "Norway", "None", "N")
"""Common words. Where one begins with the same token as the abstention, that token does not identify the abstention."""


def colliding(ids: Sequence[Sequence[int]]) -> bool:
    """True where two labels begin with the same token, which then cannot tell them apart."""
    return len({label[0] for label in ids}) < len(ids)


def checked_logprob(value: Any) -> float:
    """Returns a valid log-probability: rounding above 0 is cut, −inf is a probability of 0."""
    # Said this way round, since no comparison holds of a NaN.
    if isinstance(value, bool) or not isinstance(value, int | float) or not value <= 1e-3:
        raise EngineProtocolError(f"the model gave {value!r:.80} as a log-probability")
    return min(0.0, float(value))


def upper_bound(listed: Iterable[float]) -> float:
    """Returns the most that the log-probability of a token outside this list can be."""
    values = list(listed)
    rest = 1.0 - math.fsum(math.exp(value) for value in values)
    return min(0.0, *values, math.log(rest) if rest > 0 else -math.inf)
