"""Entailment: whether one answer follows from another, as answers to the same question; and the request for it.

Knows no model: an NLI classifier answers such a request as it is, a language model by its labels (`entailer.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import EngineInfo
from ragguard.engines.requests import Reply, Request, Value
from ragguard.errors import EngineProtocolError, InvalidInput
from ragguard.records import Usage
from ragguard.text.language import meaning_key

RELATIONS = ("entailment", "neutral", "contradiction")
"""The columns, in this order, whatever order a model has them in."""


class Pair(NamedTuple):
    """Two answers to one question: does `hypothesis` follow, if `premise` is true?"""

    question: str
    premise: str
    hypothesis: str

    @property
    def turned(self) -> Pair:
        """The pair with premise and hypothesis exchanged."""
        return Pair(self.question, self.hypothesis, self.premise)

    @property
    def is_equal(self) -> bool:
        """True where both answers are the same words, so that no model need be asked."""
        return meaning_key(self.premise) == meaning_key(self.hypothesis)

    @property
    def size(self) -> int:
        """The bytes of what a classifier reads: each answer follows the question."""
        return len("".join((self.question * 2, self.premise, self.hypothesis)).encode("utf-8", "replace"))

    def digest(self, stem: str) -> bytes:
        """Returns the digest of everything that the relation depends on: `stem`, and the pair."""
        return hashlib.sha256(repr((stem, *self)).encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True)
class Entailments:
    """The probabilities of the three relations of each pair."""

    p: NDArray[np.float64]
    """(pairs, 3) in the order of `RELATIONS`; every row sums to 1."""
    usage: Usage = field(default_factory=Usage)
    mass: NDArray[np.float64] | None = None
    """(pairs,) the probability that a language model put on its three labels before they were made to sum to 1. It is 1
    for equal answers and for a classifier; None where the entailer does not report it."""
    truncated: dict[int, int] = field(default_factory=dict)
    """The number of tokens that were cut from a pair's answers to make it fit, by the pair's index."""


@dataclass(frozen=True, slots=True)
class EntailRequest(Request):
    """A request for the relation of the answers in each pair. Its values are `(p, mass, tokens cut)`, as in
    Entailments."""

    prompts: tuple[Pair, ...]

    def takes_many(self, info: EngineInfo) -> bool:
        return True

    async def ask(self, engine: Any) -> Reply:
        return self.read(await engine.entail(self.prompts, deadline=self.deadline, priority=self.priority))

    def stem(self, info: EngineInfo) -> str:
        return f"{info.fingerprint} entail"

    def read(self, answer: Entailments) -> Reply:
        """Returns the values of a model's answer; raises where it is not one row of numbers for each pair."""
        p, size = np.asarray(answer.p, dtype=np.float64), len(self.prompts)
        if p.shape != (size, len(RELATIONS)) or not np.isfinite(p).all():
            raise EngineProtocolError(
                f"{size} pairs were asked; the shape {p.shape} came, or what is no number"
            )
        masses = [1.0] * size if answer.mass is None else np.asarray(answer.mass).tolist()
        rows = zip(p.tolist(), masses, strict=True)
        return Reply(
            [(tuple(row), mass, answer.truncated.get(at, 0)) for at, (row, mass) in enumerate(rows)],
            answer.usage,
        )

    def answer(self, reply: Reply, pairs: Sequence[Pair]) -> Entailments:
        """Returns one row for each of some pairs, which are those of this request or have two equal answers."""
        known = dict(zip(self.prompts, reply.values, strict=True))
        rows = [known.get(pair, _EQUAL) for pair in pairs]
        return Entailments(
            np.array([p for p, _, _ in rows], dtype=np.float64).reshape(-1, len(RELATIONS)),
            reply.usage,
            np.array([mass for _, mass, _ in rows]),
            {at: cut for at, (_, _, cut) in enumerate(rows) if cut},
        )


_EQUAL: Value = ((1.0, 0.0, 0.0), 1.0, 0)


def columns_of(labels: Mapping[int, str], model: str) -> NDArray[np.float64]:
    """Returns (classes, 3): 1 where a class of a classifier is a relation, by the names that it gives its classes.

    A class that only denies entailment is counted as neutral: it does not claim a contradiction.
    """
    names = [labels.get(index, "").casefold() for index in range(len(labels))]
    table = np.zeros((len(names), len(RELATIONS)))
    for index, name in enumerate(names):
        for relation, word in enumerate(("entail", "neutral", "contradict")):
            denied = relation == 0 and ("not" in name or "non" in name)
            table[index, 1 if denied else relation] += word in name
    if table[:, 0].sum() != 1 or (table.sum(axis=1) != 1).any() or table.sum(axis=0).max() > 1:
        raise InvalidInput(
            f"labels of {model}",
            ", ".join(label for _, label in sorted(labels.items())),
            "names that say entailment, neutral and contradiction: where `id2label` in the model's config has others, "
            "write such names there",
        )
    return table


def as_texts(pair: Pair) -> tuple[str, str]:
    """Returns the two texts that a classifier compares: each answer follows the question, since bare answers mean
    nothing to a classifier ("No", "1922")."""
    return f"{pair.question} {pair.premise}".strip(), f"{pair.question} {pair.hypothesis}".strip()
