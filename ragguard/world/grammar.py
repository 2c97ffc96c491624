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
from typing import Literal

FIRST_NAMES = tuple(
    """
    Ada Agnes Alba Alec Alma Amos Anders Anita Anton Arlo Arne Astrid Aurel Axel Basil Beata Bella Benno
    Berta Birgit Boris Britta Bruno Carla Carmen Casper Cecil Celia Clara Conrad Cora Cyril Dagmar
    Damian Daria Delia Denis Diana Dora Doris Edgar Edith Egon Elena Elias Elin Elmer Elsa Emil Emma
    Enid Erik Erna Esther Eva Fabian Felix Fiona Flora Frank Frida Gerda Gilbert Gisela Greta Gustav
    Hanna Harald Hector Hedda Heidi Helga Henrik Hilda Holger Hugo Ida Igor Ilse Ines Ingrid Irene Iris
    Isak Ivan Ivo Jakob Jana Janet Jasper Joan Jonas Josef Julia Julius Jutta Karin Karl Kasimir Katja
    Kirsten Klaus Klara Knut Kurt Lars Laura Lea Lena Leo Leon Lidia Lina Linus Lisa Livia Lorenz Louis
    Luca Lucy Ludwig Luisa Magda Magnus Malte Marcel Margit Maria Marlene Marta Martin Mathis Matilda
    Max Mia Mikael Mila Milan Mina Mira Monica Moritz Nadia Nelly Nicolai Nils Nina Nora Olaf Olga
    Oliver Oskar Otto Paula Pavel Pedro Petra Philip Pia Quentin Rafael Ralf Regina Rita Robert Roland
    Rolf Rosa Rudolf Ruth Sara Selma Sigrid Silas Simon Sofia Sonja Stefan Stella Sven Tamara Tea Theo
    Thomas Tilda Tobias Tom Ulla Urban Ursula Vera Viktor Vilma Walter Wanda Willa Yara Yvonne Zita Zoe
    """.split()
)

_LAST_STEMS = (
    "Lind Sand Nord Dal Ek Sten Wester Oster Hag Ros Gran Alm Bjork Hed Back Kvist Soder Ny Fors Ahl".split()
)
_LAST_ENDINGS = "berg strom gren quist man holm lund blad mark ros".split()
LAST_NAMES = ("Berg", *(a + b for a in _LAST_STEMS for b in _LAST_ENDINGS if a.lower() != b))[:200]

TOWN_PREFIXES = tuple("Port Upper Lower Old New North South East West Great Little Saint".split())
_TOWN_STEMS = "Tarn Brack Holl Ash Wen Mar Sel Dun Thorn Kel".split()
_TOWN_ENDINGS = "wick ford ham mere stead by dale ness combe holt".split()
TOWN_STEMS = ("Oslo", *(a + b for a in _TOWN_STEMS for b in _TOWN_ENDINGS))[:100]

_FIRM_STEMS = "Nor Vel Quin Zan Orb Lum Hex Cor Dax Fen Gal Tri".split()
_FIRM_ENDINGS = "vik tek ara ion well mont sol gard line dor".split()
FIRM_STEMS = tuple(a + b for a in _FIRM_STEMS for b in _FIRM_ENDINGS)
FIRM_KINDS = tuple("Mills Works Lines Labs Foundry Motors Press Bank Foods Yards Glass Mines".split())

PROFESSIONS = tuple(
    """
    baker teacher painter lawyer doctor pilot sailor farmer miner singer writer poet judge nurse tailor
    mason carpenter chemist botanist printer weaver smith cook dancer sculptor geologist banker barber
    butcher fisher gardener hunter jeweller librarian merchant potter surveyor translator drummer
    clockmaker
    """.split()
)

PRODUCTS = tuple(
    """
    ships clocks lamps ropes paper carpets engines bicycles candles soap bottles boots gloves hats
    pianos violins radios cameras tires bricks tiles nails tools toys pens pencils chairs tables doors
    windows pumps boilers sails nets barrels coins mirrors pots knives buttons
    """.split()
)

REGIONS = tuple(a + b for a in "Arl Bor Cal Dol Est Fal".split() for b in "onia avia ovia land".split())

YEARS = tuple(str(year) for year in range(1850, 2000))


Kind = Literal["person", "firm", "town", "year", "profession", "product", "region"]
Split = Literal["train", "heldout"]

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


def _read_relations() -> dict[str, Relation]:
    tables = tomllib.loads((files("ragguard.world") / "relations.toml").read_text(encoding="utf-8"))
    return {
        name: Relation(
            name, table["subject"], table["object"],
            *(tuple(table.get(phrasings, ())) for phrasings in ("facts", "questions", "nouns")),
        )
        for name, table in tables.items()
    }  # fmt: skip


RELATIONS = _read_relations()
"""The relations of `relations.toml`, by name."""

THAT = {"person": "that person", "firm": "that firm", "town": "that town"}

# Which relation may follow which in a two-hop question: any that the object of the first has, save going
# straight back.
CHAINS: tuple[tuple[str, str], ...] = tuple(
    (first.name, second.name)
    for first in RELATIONS.values()
    if first.nouns
    for second in RELATIONS.values()
    if second.subject == first.object
    and (first.name, second.name) not in {("spouse", "spouse"), ("base", "firm_in"), ("firm_in", "base")}
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
