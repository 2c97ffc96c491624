"""Entities and the facts between them: one closed world for each seed, and the facts that nano knows by heart."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import get_args

from ragguard.errors import InvalidInput
from ragguard.world.grammar import CHAINS, INVERSE, NAMES, RELATIONS, VALUES, Kind, Split

_SIZES: dict[Kind, int] = {"person": 1500, "firm": 240, "town": 240}


@dataclass(frozen=True, slots=True)
class Fact:
    relation: str
    subject: str
    object: str


@dataclass(slots=True)
class Facts:
    """The true facts: at most one object for a subject and a relation, and the converse where a relation has one."""

    objects: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, fact: Fact) -> bool:
        """Adds a fact and its converse, if it has one; returns False where that would contradict a fact."""
        held = {(fact.subject, fact.relation): fact.object}
        if fact.relation in INVERSE:
            held[fact.object, INVERSE[fact.relation]] = fact.subject
        if fact.subject == fact.object or any(key in self.objects for key in held):
            return False
        self.objects.update(held)
        return True

    def object(self, subject: str, relation: str) -> str | None:
        return self.objects.get((subject, relation))

    def all(self) -> list[Fact]:
        return [Fact(relation, subject, object_) for (subject, relation), object_ in self.objects.items()]


def pair_split(first: int, second: int) -> Split:
    """Returns the split of the entity whose two words have these indices; one pair of words in five is held out."""
    return "heldout" if (first + second) % 5 == 4 else "train"


@lru_cache
def names(kind: Kind, split: Split) -> tuple[str, ...]:
    """Returns all two-word entities of a kind and a split, without those that nano knows by heart."""
    firsts, seconds = NAMES[kind]
    known = set(known_world().entities[kind]) if split == "train" else set()
    pairs = [(i, j) for i in range(len(firsts)) for j in range(len(seconds)) if pair_split(i, j) == split]
    return tuple(name for i, j in pairs if (name := f"{firsts[i]} {seconds[j]}") not in known)


def aliases(kind: Kind, name: str) -> list[str]:
    """Returns the names under which an entity counts as answered, the full one first."""
    if kind != "person":
        return [name]
    first, last = name.split(" ")
    return [name, f"{first[0]}. {last}", last]


class World:
    """A closed world: every person, firm and town of it has an object for every relation of its kind.

    `split` says whose names it uses; the held-out world shares no person, firm or town with anything
    nano was trained on. `entities` are drawn unless they are given.
    """

    def __init__(
        self,
        seed: int = 0,
        split: Split = "heldout",
        *,
        entities: Mapping[Kind, list[str]] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if split not in get_args(Split):
            raise InvalidInput("split", split, "'train' or 'heldout'")
        rng = rng or random.Random(f"world {seed} {split} {_SIZES['person']}")
        entities = entities or {kind: rng.sample(names(kind, split), size) for kind, size in _SIZES.items()}
        self.split, self.entities = split, entities
        self.facts = Facts()
        pools: dict[Kind, Sequence[str]] = {**VALUES, **entities}
        towns = rng.sample(entities["town"], len(entities["town"]))
        for firm, town in zip(entities["firm"], towns, strict=False):
            self.facts.add(Fact("base", firm, town))
        people = rng.sample(entities["person"], len(entities["person"]))
        for one, other in zip(people[::2], people[1::2], strict=False):
            self.facts.add(Fact("spouse", one, other))
        for relation in RELATIONS.values():
            if relation.name in INVERSE:
                continue
            for subject in entities[relation.subject]:
                while not self.facts.add(Fact(relation.name, subject, rng.choice(pools[relation.object]))):
                    pass
        self.all_facts = self.facts.all()
        self._alike: dict[tuple[Kind, str], list[str]] = {}
        for kind, held in entities.items():
            for name in held:
                for word in name.split(" "):
                    self._alike.setdefault((kind, word), []).append(name)
        self.chains = [
            (one, two)
            for one in self.all_facts
            for first, second in CHAINS
            if one.relation == first
            and (object_ := self.facts.object(one.object, second)) is not None
            and object_ != one.subject
            and (two := Fact(second, one.object, object_))
        ]

    def alike(self, kind: Kind, name: str) -> list[str]:
        """Returns the entities of a kind that share a word with a name, without the entity itself."""
        words_of = name.split(" ")
        return [other for word in words_of for other in self._alike.get((kind, word), ()) if other != name]

    def all_of(self, kind: Kind) -> Sequence[str]:
        """Returns the entities or the plain values of a kind."""
        return VALUES[kind] if kind in VALUES else self.entities[kind]

    def others_about(self, fact: Fact, avoided: Set[str]) -> list[Fact]:
        """Returns the other facts about a fact's subject, without those whose object is avoided."""
        return [
            Fact(relation.name, fact.subject, object_)
            for relation in RELATIONS.values()
            if relation.subject == RELATIONS[fact.relation].subject and relation.name != fact.relation
            and (object_ := self.facts.object(fact.subject, relation.name)) is not None
            and object_ not in avoided
        ]  # fmt: skip

    def drawn(self, rng: random.Random, avoided: Set[str], fits: Callable[[Fact], bool]) -> Fact:
        """Draws a fact that fits and that is about nothing of what is avoided."""
        while True:
            fact = rng.choice(self.all_facts)
            if fits(fact) and not avoided & {fact.subject, fact.object}:
                return fact

    def false_object(self, rng: random.Random, fact: Fact, avoided: Set[str]) -> str:
        """Draws an object of the right kind that is not avoided and shares no alias with the true one."""
        kind = RELATIONS[fact.relation].object
        true = set(aliases(kind, fact.object))
        while True:
            other = rng.choice(self.all_of(kind))
            if other not in avoided and not true & set(aliases(kind, other)):
                return other


@lru_cache
def known_world() -> World:
    """Returns the small world whose facts nano learns by heart: 30 people, 10 firms and 10 towns."""
    rng = random.Random("known by heart")
    sizes: dict[Kind, int] = {"person": 30, "firm": 10, "town": 10}
    entities: dict[Kind, list[str]] = {}
    for kind, (firsts, seconds) in NAMES.items():
        chosen: list[str] = []
        while len(chosen) < sizes[kind]:
            i, j = rng.randrange(len(firsts)), rng.randrange(len(seconds))
            if pair_split(i, j) == "train" and f"{firsts[i]} {seconds[j]}" not in chosen:
                chosen.append(f"{firsts[i]} {seconds[j]}")
        entities[kind] = chosen
    return World(split="train", entities=entities, rng=rng)


@lru_cache
def known_facts() -> tuple[Fact, ...]:
    """Returns the one-hop facts that nano knows by heart, in a fixed order."""
    return tuple(known_world().all_facts)


@lru_cache
def known_chains() -> tuple[tuple[Fact, Fact], ...]:
    """Returns the facts of the sixty two-hop questions that nano knows by heart."""
    return tuple(random.Random("known chains").sample(known_world().chains, 60))
