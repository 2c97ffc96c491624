"""A searchable corpus of a world's facts, and a seeded BM25 retriever over it, for examples and tests."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import islice

from ragguard.records import Passage
from ragguard.runtime.arguments import number_between, whole_number
from ragguard.text.search import Index
from ragguard.world.cases import state
from ragguard.world.facts import Fact, World
from ragguard.world.grammar import RELATIONS

_WORD = re.compile(r"[^\W_]+")
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
        self._index: Index | None = None

    def search(self, text: str, k: int) -> list[tuple[int, float]]:
        """Returns the numbers and scores of the `k` best passages, best first; of equal ones the lower number first.
        The index is built at first use."""
        if self._index is None:
            self._index = Index(_words(passage.text) for passage in self.passages)
        return list(islice(self._index.best(_words(text)), k))


class Retriever:
    """Gives the `k` best passages for a query; a share `noise` of the places holds passages drawn at random instead."""

    def __init__(self, corpus: Corpus, k: int = 5, noise: float = 0.0, seed: int = 0) -> None:
        whole_number("k", k, 1)
        number_between("noise", noise, 0, 1, "0 to 1")
        self.corpus, self.k, self.noise, self.seed = corpus, k, noise, seed

    def __call__(self, query: str) -> list[Passage]:
        rng = random.Random(f"retrieve {self.seed} {query}")
        found = [(self.corpus.passages[i], score) for i, score in self.corpus.search(query, self.k)]
        for place in range(len(found)):
            if rng.random() < self.noise:
                found[place] = (rng.choice(self.corpus.passages), 0.0)
        found.sort(key=lambda pair: -pair[1])
        return [Passage(p.text, p.id, score, dict(p.metadata)) for p, score in found]
