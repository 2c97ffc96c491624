"""Questions that need several passages, and searches of known quality for them.

A report joins questions of the world into one: the reader is asked its parts, and its base has the passages that state
the facts, as often as wanted, among near misses and unrelated passages. Falsehoods are not in the base: a passage is
relevant or not, as in the papers that count relevant passages.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ragguard.errors import InvalidInput
from ragguard.records import Passage
from ragguard.world import Case, Fact, Split, aliases
from ragguard.world.cases import state
from ragguard.world.grammar import RELATIONS

APPEAL = {
    "gold": 1.0, "same_relation": 0.6, "same_subject": 0.6, "unrelated": 0.0,
    "partial": 0.9, "same_type": 0.2, "near_name": 0.8, "outdated": 0.9,
}  # fmt: skip
"""The score of a passage by a search without error, by kind; near misses score above their worth."""
SEARCHES = {"sharp": 0.25, "fair": 0.5, "blunt": 1.0}
"""The standard deviation of each search's error, by the search's name."""
_STATEMENTS = 4
_SPLIT: Split = "heldout"


@dataclass(frozen=True, slots=True)
class Part:
    """A sub-question of a report."""

    question: str
    references: tuple[str, ...]
    fact: Fact
    """The last fact that answers it."""


@dataclass(frozen=True, slots=True)
class Report:
    """A question of several parts and all passages that there are for it."""

    id: str
    parts: tuple[Part, ...]
    base: tuple[Passage, ...]

    @property
    def question(self) -> str:
        """The questions of all parts together."""
        return " ".join(part.question for part in self.parts)

    @property
    def relevant(self) -> tuple[bool, ...]:
        """True for each passage of the base that states a fact that is asked for."""
        return tuple(passage.metadata["kind"] == "gold" for passage in self.base)

    @property
    def grades(self) -> list[int]:
        """The world's grades of the base."""
        return [passage.grade or 1 for passage in self.base]

    def ranked(self, error: float, seed: int = 0) -> tuple[int, ...]:
        """Returns the indices of the base in the order of a search with that error, best first."""
        rng = random.Random(f"search {seed} {self.id} {error}")
        looks = [APPEAL[passage.metadata["kind"]] + rng.gauss(0, error) for passage in self.base]
        return tuple(sorted(range(len(looks)), key=lambda at: -looks[at]))


def join(cases: Sequence[Case], name: str, *, statements: int = 1, by_hop: bool = False) -> Report:
    """Makes a report over cases; each fact that they need is stated `statements` times in different words.

    With `by_hop` its parts are the queries of the hops, else the questions themselves.
    """
    if not 1 <= statements <= _STATEMENTS:
        raise InvalidInput("statements", statements, f"1 to {_STATEMENTS}")
    rng = random.Random(f"report {name}")
    parts = [part for case in cases for part in _parts(case, by_hop)]
    wanted = {frozenset((fact.subject, fact.object)) for case in cases for fact in case.facts}
    base = [
        passage
        for case in cases
        for fact, gold in zip(case.facts, case.gold, strict=True)
        for passage in _stated(rng, fact, gold, statements)
    ]
    # A near miss of one part may be a passage that another part needs.
    base += [
        passage
        for case in cases
        for passage in case.distractors
        if passage.metadata["kind"] in APPEAL
        and frozenset((passage.metadata["subject"], passage.metadata["object"])) not in wanted
    ]
    distinct = {passage.text: passage for passage in reversed(base)}
    return Report(name, tuple(parts), tuple(reversed(distinct.values())))


def of_case(case: Case, name: str) -> Report:
    """Makes a report of one question, whose base is all passages of the case."""
    return Report(name, tuple(_parts(case, by_hop=False)), tuple(case.pool()))


def join_hard(cases: Sequence[Case], name: str) -> Report:
    """Makes a report over harder cases, in which one gold passage of each also answers the next case's question."""
    parts = [part for case in cases for part in _parts(case, by_hop=False)]
    base = []
    for number, case in enumerate(cases):
        others = [
            [fact.relation, fact.subject, fact.object]
            for other in cases
            if other is not case
            for fact in other.facts
        ]
        following = cases[(number + 1) % len(cases)].gold[-1]
        both = replace(case.gold[0], text=f"{case.gold[0].text} {following.text}")
        base += [both, *case.gold[1:]]
        base += [one for one in case.distractors if not any(fact in others for fact in one.metadata["facts"])]
    return Report(name, tuple(parts), tuple(base))


def _parts(case: Case, by_hop: bool) -> list[Part]:
    if not by_hop:
        return [Part(case.question, tuple(case.references), case.facts[-1])]
    return [
        Part(question, tuple(aliases(RELATIONS[fact.relation].object, fact.object)), fact)
        for question, fact in zip(case.sub_questions, case.facts, strict=True)
    ]


def _stated(rng: random.Random, fact: Fact, gold: Passage, times: int) -> list[Passage]:
    """Returns the gold passage and others that state the same fact."""
    texts = [gold.text]
    while len(texts) < times:
        text = state(rng, fact, _SPLIT)
        if text not in texts:
            texts.append(text)
    return [replace(gold, text=text, id=f"{gold.id}-{number}") for number, text in enumerate(texts)]
