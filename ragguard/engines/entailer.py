"""Entailment: whether one answer follows from another, as answers to the same question.

The protocol of an entailer: `entail(pairs)` returns (entailment, neutral, contradiction) for each pair. It has three
implementations: a language model, and in files of their own an NLI classifier behind vLLM's `/classify` and a
transformers cross-encoder.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import Engine, EngineInfo
from ragguard.engines.prompts import PromptSet, load_prompts
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


@runtime_checkable
class Entailer(Protocol):
    """A model that judges entailment."""

    async def entail(
        self, pairs: Sequence[Pair], *, deadline: float | None = None, priority: int = 0
    ) -> Entailments:
        """Returns one row for each pair. `deadline` and `priority` mean what they mean to an engine."""
        ...

    async def info(self) -> EngineInfo:
        """Returns the description of the entailer; its fingerprint is part of the scores that use it."""
        ...

    async def aclose(self) -> None:
        """Releases connections, threads and memory. Safe to call twice."""
        ...


Known: TypeAlias = tuple[NDArray[np.float64], float, int]
"""The probabilities of a pair's relations, their mass, and the tokens that were cut from its answers."""
_SAME: Known = (np.array([1.0, 0.0, 0.0]), 1.0, 0)


def rows_of(reply: Entailments, pairs: int) -> NDArray[np.float64]:
    """Returns the probabilities of a reply as an array; raises where it is not one row of numbers for each pair."""
    p = np.asarray(reply.p, dtype=np.float64)
    if p.shape != (pairs, len(RELATIONS)) or not np.isfinite(p).all():
        raise EngineProtocolError(f"{pairs} pairs were asked; the shape {p.shape} came, or what is no number")
    return p


async def entail_distinct(
    pairs: Sequence[Pair],
    ask: Callable[[Sequence[Pair]], Awaitable[Entailments]],
    known: dict[Pair, Known] | None = None,
) -> Entailments:
    """Sends each different pair once to `ask`; none whose two answers are the same words, and none that is `known`, to
    which the answers are added."""
    known = {} if known is None else known
    distinct = dict.fromkeys(
        pair for pair in pairs if meaning_key(pair.premise) != meaning_key(pair.hypothesis)
    )
    found = {pair: known[pair] for pair in distinct if pair in known}
    usage = Usage(prompts=len(found), cached=len(found))
    if missing := [pair for pair in distinct if pair not in found]:
        reply = await ask(missing)
        p = rows_of(reply, len(missing))
        mass = np.ones(len(missing)) if reply.mass is None else reply.mass
        new = {
            pair: (p[row], float(mass[row]), reply.truncated.get(row, 0)) for row, pair in enumerate(missing)
        }
        known.update(new)
        found |= new
        usage += reply.usage
    rows = [found.get(pair, _SAME) for pair in pairs]
    return Entailments(
        np.array([p for p, _, _ in rows]).reshape(-1, len(RELATIONS)),
        usage,
        np.array([mass for _, mass, _ in rows]),
        {index: cut for index, (_, _, cut) in enumerate(rows) if cut},
    )


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


class EngineEntailer:
    """Compares answers by asking a language model which of three labels follows.

    Args:
        engine: The engine that is asked.
        prompts: A set of prompts, its name or its TOML file. None: the engine's own.
    """

    def __init__(self, engine: Engine, prompts: str | Path | PromptSet | None = None) -> None:
        self._engine = engine
        self._prompts = None if prompts is None else load_prompts(prompts)

    async def entail(
        self, pairs: Sequence[Pair], *, deadline: float | None = None, priority: int = 0
    ) -> Entailments:
        """Returns one row for each pair: the probabilities of the three labels, made to sum to 1, and their mass."""
        prompts = await self._set()
        labels = prompts.labels("entailment")

        async def ask(distinct: Sequence[Pair]) -> Entailments:
            rendered = [
                prompts.render(
                    "entailment", cuttable=("first", "second"), question=question, first=one, second=other
                )
                for question, one, other in distinct
            ]
            answer = await self._engine.label_probs(rendered, labels, deadline=deadline, priority=priority)
            # Where a model puts no probability on its labels, all three get the same, and the mass is 0.
            heard = np.where(answer.mass[:, None] > 0, answer.p, 1.0)
            p = heard / heard.sum(axis=-1, keepdims=True)
            return Entailments(p, answer.usage, answer.mass, answer.truncated)

        return await entail_distinct(pairs, ask)

    async def info(self) -> EngineInfo:
        """Returns the engine's info, with the prompts as part of its fingerprint."""
        info = await self._engine.info()
        identity = (await self._set()).identity
        return replace(info, fingerprint=f"{info.fingerprint} entailment {identity}", prompts=identity)

    async def aclose(self) -> None:
        """Does nothing: the code that made the engine closes it."""

    async def _set(self) -> PromptSet:
        return self._prompts or load_prompts((await self._engine.info()).prompts)
