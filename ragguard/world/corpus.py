"""A searchable corpus of a world's facts, and a seeded BM25 retriever over it, for examples and tests."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragguard.errors import InvalidInput
from ragguard.records import Passage
from ragguard.world.cases import state
from ragguard.world.facts import Fact, World
from ragguard.world.grammar import RELATIONS

Index: TypeAlias = tuple[dict[str, tuple[NDArray[np.intp], NDArray[np.float64]]], int]
"""Word → the numbers of the passages that hold it and its weight in each; and how many passages there are."""

_WORD = re.compile(r"[^\W_]+")
_K1, _B = 1.2, 0.75
# Stop words, and the openings of the world's sentences.
_STOP = frozenset(
    "a as at by did do does fact for from has have i in indeed is it its me name notably now of please"
    " records s said say show tell that the to was what when where which who whom with".split()
)


def _words(text: str) -> list[str]:
    return [folded for word in _WORD.findall(text) if (folded := word.casefold()) not in _STOP]


class Corpus:
    """Every fact of a world as a passage, and beside them repetitions in other words and a few falsehoods,
    up to `size`; then what is given as `extra`, such as the distractors of some cases.
    """

    def __init__(
        self, world: World, size: int = 10_000, falsehoods: float = 0.03, extra: Sequence[Passage] = ()
    ) -> None:
        rng = random.Random(f"corpus {world.split} {size}")
        said = [(fact, True) for fact in world.all_facts if fact.relation != "firm_in"]
        rng.shuffle(said)
        said = said[:size]
        while len(said) < size:
            fact = rng.choice(world.all_facts)
            if rng.random() < falsehoods * size / max(1, size - len(world.all_facts)):
                false = rng.choice(world.all_of(RELATIONS[fact.relation].object))
                if false not in (fact.object, fact.subject):
                    said.append((Fact(fact.relation, fact.subject, false), False))
            else:
                said.append((fact, True))
        rng.shuffle(said)
        self.passages = [
            Passage(
                state(rng, fact, world.split, hedged=rng.random() < 0.05),
                id=f"p{number:05d}",
                metadata={
                    "subject": fact.subject,
                    "relation": fact.relation,
                    "object": fact.object,
                    "true": true,
                },
            )
            for number, (fact, true) in enumerate(said)
        ] + list(extra)
        self._built: Index | None = None

    @property
    def _index(self) -> Index:
        """Returns, for every word, the passages that hold the word and its BM25 weight in them; built at first use."""
        # functools.cached_property holds one lock for the class on Python 3.11, and a fork may copy it locked.
        if self._built is None:
            self._built = self._build_index()
        return self._built

    def _build_index(self) -> Index:
        counts = [Counter(_words(passage.text)) for passage in self.passages]
        lengths = np.array([sum(count.values()) for count in counts], dtype=np.float64)
        norm = _K1 * (1 - _B + _B * lengths / lengths.mean())
        places: dict[str, list[tuple[int, int]]] = {}
        for number, count in enumerate(counts):
            for word, times in count.items():
                places.setdefault(word, []).append((number, times))
        index = {}
        for word, found in places.items():
            at = np.array([number for number, _ in found], dtype=np.intp)
            times_there = np.array([times for _, times in found], dtype=np.float64)
            rarity = math.log(1 + (len(counts) - len(found) + 0.5) / (len(found) + 0.5))
            index[word] = (at, rarity * times_there * (_K1 + 1) / (times_there + norm[at]))
        return index, len(counts)

    def search(self, text: str, k: int) -> list[tuple[int, float]]:
        """Returns the numbers and scores of the `k` best passages, best first; of equal ones the lower number first."""
        index, size = self._index
        scores = np.zeros(size)
        for word in _words(text):
            if word in index:
                at, weights = index[word]
                scores[at] += weights
        best = np.argsort(-scores, kind="stable")[:k]
        return [(int(i), float(scores[i])) for i in best if scores[i] > 0]


class Retriever:
    """Gives the `k` best passages for a query; a share `noise` of the places holds passages drawn at random instead."""

    def __init__(self, corpus: Corpus, k: int = 5, noise: float = 0.0, seed: int = 0) -> None:
        if k < 1:
            raise InvalidInput("k", k, "1 or more")
        if not 0 <= noise <= 1:
            raise InvalidInput("noise", noise, "0 to 1")
        self.corpus, self.k, self.noise, self.seed = corpus, k, noise, seed

    def __call__(self, query: str) -> list[Passage]:
        rng = random.Random(f"retrieve {self.seed} {query}")
        found = [(self.corpus.passages[i], score) for i, score in self.corpus.search(query, self.k)]
        for place in range(len(found)):
            if rng.random() < self.noise:
                found[place] = (rng.choice(self.corpus.passages), 0.0)
        found.sort(key=lambda pair: -pair[1])
        return [Passage(p.text, p.id, score, dict(p.metadata)) for p, score in found]
