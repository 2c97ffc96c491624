"""Facts and questions put into the words that training may use, and fresh names to put into them."""

from __future__ import annotations

import random
from functools import cache

from ragguard.world.facts import Fact, known_world, pair_split
from ragguard.world.grammar import (
    NAMES,
    QUESTION_OPENINGS,
    RELATIONS,
    THAT,
    VALUES,
    Kind,
    fact_phrasings,
    question_phrasings,
    sentence,
)


@cache
def _places(kind: Kind) -> tuple[dict[str, int], dict[str, int]]:
    firsts, seconds = NAMES[kind]
    return {w: i for i, w in enumerate(firsts)}, {w: i for i, w in enumerate(seconds)}


@cache
def _reserved() -> frozenset[str]:
    return frozenset(name for names in known_world().entities.values() for name in names)


def new_name(rng: random.Random, kind: Kind, like: str = "") -> str:
    """A name that training may use; with `like`, one that shares a word with that name; a value for a kind
    of values.
    """
    if kind in VALUES:
        return rng.choice(VALUES[kind])
    firsts, seconds = NAMES[kind]
    if kind == "town" and not like and rng.random() < 0.08:
        return rng.choice(seconds)
    while True:
        i, j = rng.randrange(len(firsts)), rng.randrange(len(seconds))
        if " " in like:
            first, second = like.split(" ")
            i, j = (_places(kind)[0][first], j) if rng.random() < 0.5 else (i, _places(kind)[1][second])
        name = f"{firsts[i]} {seconds[j]}"
        if pair_split(i, j) == "train" and name != like and name not in _reserved():
            return name


@cache
def _facts(relation: str, hedged: bool) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    both = fact_phrasings(RELATIONS[relation], "train", hedged=hedged)
    return both, [phrasing for phrasing in both if not phrasing[0]] or both


@cache
def _questions(first: str, second: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    if second:
        both = question_phrasings([RELATIONS[first], RELATIONS[second]], "train")
    else:
        both = question_phrasings([RELATIONS[first]], "train")
    return both, [phrasing for phrasing in both if not phrasing[0]] or both


def tell(
    rng: random.Random,
    fact: Fact,
    *,
    hedged: bool = False,
    plain: bool = False,
    subject: str = "",
    object_: str = "",
) -> str:
    """A fact as a sentence; `subject` and `object_` stand in for the names where given."""
    opened, bare = _facts(fact.relation, hedged)
    opening, core = rng.choice(bare if not hedged and rng.random() < 0.4 else opened)
    if plain:
        opening, core = bare[0]
    return sentence(opening, core, subject or fact.subject, object_ or fact.object)


def ask(rng: random.Random, subject: str, relation: str, second: str = "", *, plain: bool = False) -> str:
    """A question about a subject: of one relation, or of a second one of what the first leads to."""
    opened, bare = _questions(relation, second)
    opening, core = rng.choice(bare if rng.random() < 0.5 else opened)
    if plain:
        opening, core = bare[0]
    end = "?" if rng.random() < 0.93 else ""
    text = sentence(opening, core, subject, end=end)
    return text[0].lower() + text[1:] if rng.random() < 0.1 and not core.startswith("{s}") else text


def steps(subject: str, relation: str, second: str) -> str:
    """The sub-questions of a two-hop question in their plainest form, one a line."""
    one = sentence("", RELATIONS[relation].questions[0], subject, end="?")
    two = sentence("", RELATIONS[second].questions[0], THAT[RELATIONS[relation].object], end="?")
    return f"{one}\n{two}"


def asks_plainly(rng: random.Random, relation: str) -> str:
    """A question that names no subject: "where was that person born?"."""
    opening = rng.choice(QUESTION_OPENINGS[:2])
    return sentence(opening, RELATIONS[relation].questions[0], THAT[RELATIONS[relation].subject], end="?")
