"""A closed, made-up world with known truth: labelled cases, graded pools, whole runs and a corpus to search.

    from ragguard import world
    case = world.cases(1, hops=2)[0]
    case.question, case.references, case.gold, case.distractors, case.sub_questions
    passages = world.retriever(k=5, noise=0.2)(case.question)

The functions of this module use the default world (seed 0, held out from nano's training); `World(seed)`
makes others. nano understands any of them; what it knows by heart is `known_facts()`, and
`cases(known=True)` asks for that.
"""

from __future__ import annotations

from functools import lru_cache

from ragguard.world.cases import Case, Counts, PassageKind, cases, default_world, make_run
from ragguard.world.corpus import Corpus, Retriever
from ragguard.world.facts import Fact, World, aliases, known_facts
from ragguard.world.grammar import Split

__all__ = [
    "Case",
    "Corpus",
    "Counts",
    "Fact",
    "PassageKind",
    "Retriever",
    "Split",
    "World",
    "aliases",
    "cases",
    "default_world",
    "known_facts",
    "make_run",
    "retriever",
]


_corpus = lru_cache(maxsize=2)(Corpus)


def retriever(k: int = 5, noise: float = 0.0, seed: int = 0, split: Split = "heldout") -> Retriever:
    """Returns a BM25 retriever over the default world's 10,000 passages; a share `noise` of its results is random."""
    return Retriever(_corpus(default_world(split)), k, noise, seed)
