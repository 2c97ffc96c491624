"""The pools that contexts are drawn from: the best passages of a search, each with its kind.

The recipe is Trappolini et al.'s: contexts drawn from the 25 best passages, half of them with what is needed to answer.
The search runs over the world's corpus, into which the near misses and falsehoods of the asked cases are mixed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ragguard.errors import InvalidInput
from ragguard.lab.validation.contexts import Context
from ragguard.records import Passage
from ragguard.world import Case, Corpus, Fact, PassageKind, World
from ragguard.world.grammar import INVERSE

SIZE = 25


@dataclass(frozen=True, slots=True)
class Pool:
    """A case and the passages found for it, best first."""

    id: str
    case: Case
    passages: tuple[Passage, ...]
    found_by: tuple[frozenset[int], ...]
    """The passages that the query of each hop found."""
    kinds: tuple[PassageKind, ...]
    gold: tuple[frozenset[int], ...]
    """The passages that state the fact of each hop: a corpus says a thing more than once."""

    @property
    def relevance(self) -> tuple[float, ...]:
        """Returns 1 for each passage that states a fact that the question needs, else 0."""
        return tuple(float(kind == "gold") for kind in self.kinds)

    def context(self, places: Sequence[int], name: str) -> Context:
        """Returns the context of some of the passages, in that order, with the world's own relevance."""
        relevance = self.relevance
        return Context(
            id=f"{self.id}/{name}",
            question_id=self.id,
            question=self.case.question,
            passages=tuple(self.passages[place] for place in places),
            references=tuple(self.case.references),
            relevance=tuple(relevance[place] for place in places),
            ideal=relevance,
        )

    def answerable(self, places: Sequence[int]) -> bool:
        """Returns whether these passages state every fact that the question needs."""
        return all(not found.isdisjoint(places) for found in self.gold)


def corpus_for(world: World, cases: Sequence[Case]) -> Corpus:
    """Returns the world's corpus with the distractors of the cases among its passages."""
    return Corpus(world, extra=[passage for case in cases for passage in case.pool()])


def find_pools(corpus: Corpus, cases: Sequence[Case], name: str, size: int = SIZE) -> list[Pool]:
    """Makes a pool for each case whose facts a search for its hops finds; the others are left out.

    A hop's own query finds an equal share of the pool: one search for a two-hop question seldom finds both facts.
    """
    pools = (_pool(corpus, case, f"{name}-{number}", size) for number, case in enumerate(cases))
    return [pool for pool in pools if all(pool.gold)]


def draw(pool: Pool, k: int, n: int, rng: random.Random) -> list[tuple[int, ...]]:
    """Draws `n` contexts of `k` passages in chance order: half answerable, where `k` has room for all hops, half not.

    A context that is not answerable lacks all passages that state one fact, drawn anew each time; of two hops, it may
    hold the other.
    """
    if k < 1 or k > len(pool.passages) - max(map(len, pool.gold)):
        raise InvalidInput("k", k, f"1 or more, and few enough for a pool of {len(pool.passages)}")
    drawn: list[tuple[int, ...]] = []
    for number in range(n):
        needed: set[int] = set()
        free = set(range(len(pool.passages)))
        if number % 2 == 0 and k >= len(pool.gold):
            needed = {rng.choice(sorted(found)) for found in pool.gold}
        else:
            free -= rng.choice(pool.gold)
        chosen = [*needed, *rng.sample(sorted(free - needed), k - len(needed))]
        rng.shuffle(chosen)
        drawn.append(tuple(chosen))
    return drawn


def _pool(corpus: Corpus, case: Case, name: str, size: int) -> Pool:
    share = -(-size // case.hops)
    best: dict[int, float] = {}
    found: list[list[int]] = []
    for query in case.sub_questions:
        hits = corpus.search(query, share)
        found.append([number for number, _ in hits])
        for number, score in hits:
            best[number] = max(score, best.get(number, 0.0))
    ranked = sorted(best, key=lambda number: (-best[number], number))[:size]
    place = {number: at for at, number in enumerate(ranked)}
    passages = tuple(corpus.passages[number] for number in ranked)
    facts = [_fact(passage) for passage in passages]
    return Pool(
        name,
        case,
        passages,
        tuple(frozenset(place[number] for number in numbers if number in place) for numbers in found),
        tuple(_kind(fact, case) for fact in facts),
        tuple(
            frozenset(at for at, fact in enumerate(facts) if fact in _ways(needed)) for needed in case.facts
        ),
    )


def _fact(passage: Passage) -> Fact:
    fact = passage.metadata
    return Fact(fact["relation"], fact["subject"], fact["object"])


def _ways(fact: Fact) -> set[Fact]:
    """Returns a fact and its converse, which means the same."""
    converse = INVERSE.get(fact.relation)
    return {fact} if converse is None else {fact, Fact(converse, fact.object, fact.subject)}


def _kind(fact: Fact, case: Case) -> PassageKind:
    """Returns the kind of a passage that states the fact, for a case."""
    ways = [way for needed in case.facts for way in _ways(needed)]
    if fact in ways:
        return "gold"
    if any((fact.subject, fact.relation) == (way.subject, way.relation) for way in ways):
        return "contradiction"
    if any(fact.subject == needed.subject for needed in case.facts):
        return "same_subject"
    return "same_relation" if any(fact.relation == way.relation for way in ways) else "unrelated"
