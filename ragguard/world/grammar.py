"""The world's language: its words, relations, phrasings of facts and of questions, and which phrasings are held out.

Every entity is two words (a first and a last name, a prefix and a town, a stem and a kind of firm), so that a model
that has met every word has still met only some of the pairs. No word stands in two lists.

A phrasing is an opening and a core ("Records show", "{s} was founded by {o}"). Held out are one in five
combinations, chosen so that every opening and every core is heard in training, but never that pair: no
held-out sentence frame occurs there.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from typing import Any, Literal


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((files("ragguard.world") / name).read_text(encoding="utf-8"))


_WORDS: dict[str, list[str]] = {name: text.split() for name, text in _read("words.toml").items()}


def _joined(stems: str, endings: str) -> list[str]:
    """Returns each stem with each ending that is another word."""
    return [a + b for a in _WORDS[stems] for b in _WORDS[endings] if a.lower() != b]


Kind = Literal["person", "firm", "town", "year", "profession", "product", "region"]
Split = Literal["train", "heldout"]

NAMES: dict[Kind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "person": (
        tuple(_WORDS["first_names"]),
        ("Berg", *_joined("last_name_stems", "last_name_endings"))[:200],
    ),
    "firm": (tuple(_joined("firm_stems", "firm_endings")), tuple(_WORDS["firm_kinds"])),
    "town": (tuple(_WORDS["town_prefixes"]), ("Oslo", *_joined("town_stems", "town_endings"))[:100]),
}
"""The first and the second words of the names of entities."""
VALUES: dict[Kind, tuple[str, ...]] = {
    "profession": tuple(_WORDS["professions"]),
    "product": tuple(_WORDS["products"]),
    "region": tuple(_joined("region_stems", "region_endings")),
    "year": tuple(str(year) for year in range(1850, 2000)),
}
"""The plain values, which are no entities."""

FACT_OPENINGS = ("", "Indeed,", "Notably,", "Records show", "In fact,")
HEDGES = ("It is said that", "Some say that", "People claim that")
QUESTION_OPENINGS = ("", "Tell me,", "Please,", "Say,", "Now,")


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation of a subject to an object, with its phrasings as facts and as questions.

    `nouns` name the object through its subject: "the founder of {s}".
    """

    name: str
    subject: Kind
    object: Kind
    facts: tuple[str, ...]
    questions: tuple[str, ...]
    nouns: tuple[str, ...] = ()


RELATIONS = {
    name: Relation(
        name, table["subject"], table["object"],
        *(tuple(table.get(phrasings, ())) for phrasings in ("facts", "questions", "nouns")),
    )
    for name, table in _read("relations.toml").items()
}  # fmt: skip
"""The relations of `relations.toml`, by name."""

THAT = {"person": "that person", "firm": "that firm", "town": "that town"}

INVERSE = {"spouse": "spouse", "base": "firm_in", "firm_in": "base"}
"""The relation of the object to the subject, where there is one."""

# Which relation may follow which in a two-hop question: any that the object of the first has, save going
# straight back.
CHAINS: tuple[tuple[str, str], ...] = tuple(
    (first.name, second.name)
    for first in RELATIONS.values()
    if first.nouns
    for second in RELATIONS.values()
    if second.subject == first.object and second.name != INVERSE.get(first.name)
)


def in_split(split: Split, *indices: int) -> bool:
    """Returns whether the phrasing with these indices (opening, core, noun) belongs to a split."""
    return (sum(indices) % 5 == 4) == (split == "heldout")


def fact_phrasings(relation: Relation, split: Split, *, hedged: bool = False) -> list[tuple[str, str]]:
    """Returns the (opening, core) pairs of a split for a fact."""
    return [
        (opening, core)
        for i, opening in enumerate(HEDGES if hedged else FACT_OPENINGS)
        for j, core in enumerate(relation.facts)
        if in_split(split, i, j)
    ]


def question_phrasings(relations: Sequence[Relation], split: Split) -> list[tuple[str, str]]:
    """Returns the (opening, core) pairs of a split for a question of one hop or several, given the relations of the
    hops: the subject of the last one is a noun of the one before it, and so on to the first."""
    *before, last = relations
    chosen = product(
        enumerate(QUESTION_OPENINGS),
        enumerate(last.questions),
        *(enumerate(relation.nouns) for relation in reversed(before)),
    )
    found = []
    for (i, opening), (j, core), *nouns in chosen:
        # "the firm based in Oslo's founder" would read as the founder of Oslo.
        misread = any(noun.startswith("{s}") for _, noun in nouns[:-1])
        if in_split(split, i, j, *(k for k, _ in nouns)) and not misread:
            for _, noun in nouns:
                core = core.replace("{s}", noun)
            found.append((opening, core))
    return found


def sentence(opening: str, core: str, subject: str, object_: str = "", end: str = ".") -> str:
    """Returns a sentence with a capital letter; a plain value at its beginning keeps its own, as nano knows it so."""
    bare = not opening and core.startswith("{")
    text = core.replace("{s}", subject).replace("{o}", object_)
    text = f"{opening} {text}" if opening else text
    return (text if bare else text[:1].upper() + text[1:]) + end
