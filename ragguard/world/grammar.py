"""The world's language: relations, phrasings of facts and of questions, and which phrasings are held out.

A phrasing is an opening and a core ("Records show", "{s} was founded by {o}"). Held out are one in five
combinations, chosen so that every opening and every core is heard in training, but never that pair: no
held-out sentence frame occurs there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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


RELATIONS: dict[str, Relation] = {
    r.name: r
    for r in (
        Relation(
            "birthplace",
            "person",
            "town",
            (
                "{s} was born in {o}",
                "{o} is the birthplace of {s}",
                "{s} comes from {o}",
                "the birthplace of {s} is {o}",
                "it was in {o} that {s} was born",
            ),
            questions=(
                "where was {s} born",
                "in which town was {s} born",
                "what is the birthplace of {s}",
                "which town is the birthplace of {s}",
                "which town does {s} come from",
            ),
            nouns=("the birthplace of {s}", "the town where {s} was born", "{s}'s birthplace"),
        ),
        Relation(
            "birth_year",
            "person",
            "year",
            (
                "{s} was born in {o}",
                "the birth year of {s} is {o}",
                "{o} is the birth year of {s}",
                "{s} was born in the year {o}",
                "it was in {o} that {s} was born",
            ),
            questions=(
                "when was {s} born",
                "in which year was {s} born",
                "what is the birth year of {s}",
                "which year is the birth year of {s}",
                "in what year was {s} born",
            ),
        ),
        Relation(
            "profession",
            "person",
            "profession",
            (
                "{s} is a {o}",
                "{s} works as a {o}",
                "the profession of {s} is {o}",
                "by profession {s} is a {o}",
                "{s} earns a living as a {o}",
            ),
            questions=(
                "what is the profession of {s}",
                "what does {s} work as",
                "which profession does {s} have",
                "what is {s} by profession",
                "as what does {s} work",
            ),
        ),
        Relation(
            "spouse",
            "person",
            "person",
            (
                "{s} is married to {o}",
                "{s} married {o}",
                "the spouse of {s} is {o}",
                "{o} is the spouse of {s}",
                "it was {o} who married {s}",
            ),
            questions=(
                "who is the spouse of {s}",
                "who is married to {s}",
                "whom did {s} marry",
                "to whom is {s} married",
                "who married {s}",
            ),
            nouns=("the spouse of {s}", "the person married to {s}", "{s}'s spouse"),
        ),
        Relation(
            "employer",
            "person",
            "firm",
            (
                "{s} works for {o}",
                "{o} employs {s}",
                "the employer of {s} is {o}",
                "{s} is employed by {o}",
                "{s} has a job at {o}",
            ),
            questions=(
                "which firm employs {s}",
                "who is the employer of {s}",
                "what is the employer of {s}",
                "for which firm does {s} work",
                "at which firm does {s} work",
            ),
            nouns=("the employer of {s}", "the firm that employs {s}", "{s}'s employer"),
        ),
        Relation(
            "founder",
            "firm",
            "person",
            (
                "{s} was founded by {o}",
                "{o} founded {s}",
                "the founder of {s} is {o}",
                "{o} is the founder of {s}",
                "it was {o} who founded {s}",
            ),
            questions=(
                "who founded {s}",
                "who is the founder of {s}",
                "by whom was {s} founded",
                "which person founded {s}",
                "what is the name of the founder of {s}",
            ),
            nouns=("the founder of {s}", "the person who founded {s}", "{s}'s founder"),
        ),
        Relation(
            "base",
            "firm",
            "town",
            (
                "{s} is based in {o}",
                "{o} is home to {s}",
                "the head office of {s} is in {o}",
                "{s} has its head office in {o}",
                "the home of {s} is {o}",
            ),
            questions=(
                "where is {s} based",
                "in which town is {s} based",
                "where is the head office of {s}",
                "which town is home to {s}",
                "which town is the home of {s}",
            ),
            nouns=("the home of {s}", "the town where {s} is based", "{s}'s home"),
        ),
        Relation(
            "founded",
            "firm",
            "year",
            (
                "{s} was founded in {o}",
                "{s} has existed since {o}",
                "the founding year of {s} is {o}",
                "{o} is the founding year of {s}",
                "it was in {o} that {s} was founded",
            ),
            questions=(
                "when was {s} founded",
                "in which year was {s} founded",
                "what is the founding year of {s}",
                "which year is the founding year of {s}",
                "since when has {s} existed",
            ),
        ),
        Relation(
            "product",
            "firm",
            "product",
            (
                "{s} makes {o}",
                "{s} sells {o}",
                "the main product of {s} is {o}",
                "{o} are made by {s}",
                "{s} is known for its {o}",
            ),
            questions=(
                "what does {s} make",
                "what does {s} sell",
                "what is the main product of {s}",
                "which product does {s} make",
                "what is {s} known for",
            ),
        ),
        Relation(
            "mayor",
            "town",
            "person",
            (
                "the mayor of {s} is {o}",
                "{o} is the mayor of {s}",
                "{s} has {o} as its mayor",
                "{s} is led by {o}",
                "{o} leads {s} as its mayor",
            ),
            questions=(
                "who is the mayor of {s}",
                "who leads {s}",
                "which person is the mayor of {s}",
                "by whom is {s} led",
                "what is the name of the mayor of {s}",
            ),
            nouns=("the mayor of {s}", "the person who leads {s}", "{s}'s mayor"),
        ),
        Relation(
            "region",
            "town",
            "region",
            (
                "{s} lies in {o}",
                "{s} is a town in {o}",
                "the town of {s} lies in {o}",
                "{s} belongs to {o}",
                "{o} is the region of {s}",
            ),
            questions=(
                "in which region does {s} lie",
                "which region does {s} belong to",
                "where does {s} lie",
                "in which region is {s}",
                "what is the region of {s}",
            ),
        ),
        # The same sentences as `base`, asked the other way round; a firm's town is its own, so the answer
        # is one.
        Relation(
            "firm_in",
            "town",
            "firm",
            (
                "{o} is based in {s}",
                "{s} is home to {o}",
                "the head office of {o} is in {s}",
                "{o} has its head office in {s}",
                "the home of {o} is {s}",
            ),
            questions=(
                "which firm is based in {s}",
                "which firm has its home in {s}",
                "what is the firm based in {s}",
                "which firm has its head office in {s}",
                "what is the name of the firm based in {s}",
            ),
            nouns=(
                "the firm based in {s}",
                "the firm with its head office in {s}",
                "the firm that has its home in {s}",
            ),
        ),
    )
}

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
    return _pairs(HEDGES if hedged else FACT_OPENINGS, relation.facts, split)


def question_phrasings(relation: Relation, split: Split) -> list[tuple[str, str]]:
    """Returns the (opening, core) pairs of a split for a one-hop question."""
    return _pairs(QUESTION_OPENINGS, relation.questions, split)


def chain_phrasings(first: Relation, second: Relation, split: Split) -> list[tuple[str, str]]:
    """Returns the (opening, core) pairs of a two-hop question, whose subject is a noun of the first relation."""
    return [
        (opening, core.replace("{s}", noun))
        for i, opening in enumerate(QUESTION_OPENINGS)
        for j, core in enumerate(second.questions)
        for k, noun in enumerate(first.nouns)
        if in_split(split, i, j, k)
    ]


def long_chain_phrasings(
    first: Relation, second: Relation, third: Relation, split: Split
) -> list[tuple[str, str]]:
    """Returns the (opening, core) pairs of a three-hop question: a noun of the first relation in one of the second."""
    return [
        (opening, core.replace("{s}", around.replace("{s}", noun)))
        for i, opening in enumerate(QUESTION_OPENINGS)
        for j, core in enumerate(third.questions)
        for k, around in enumerate(second.nouns)
        for m, noun in enumerate(first.nouns)
        # "the firm based in Oslo's founder" would read as the founder of Oslo.
        if in_split(split, i, j, k, m) and not around.startswith("{s}")
    ]


def _pairs(openings: Sequence[str], cores: Sequence[str], split: Split) -> list[tuple[str, str]]:
    return [
        (opening, core)
        for i, opening in enumerate(openings)
        for j, core in enumerate(cores)
        if in_split(split, i, j)
    ]


def sentence(opening: str, core: str, subject: str, object_: str = "", end: str = ".") -> str:
    """Returns a sentence with a capital letter; a plain value at its beginning keeps its own, as nano knows it so."""
    bare = not opening and core.startswith("{")
    text = core.replace("{s}", subject).replace("{o}", object_)
    text = f"{opening} {text}" if opening else text
    return (text if bare else text[:1].upper() + text[1:]) + end
