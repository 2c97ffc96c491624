"""Harder cases of the same world: several facts a passage, several gold passages, partial answers, graded distractors.

They are cases as `world.cases` makes them, in the same words, so that nano reads them as it is. What differs:

- A passage states one to three facts, of which at most one has to do with the question. The others are about
  somebody else or, in half of the near misses, about the subject that is asked for.
- Each fact that a question needs stands in several gold passages.
- `partial` passages answer in part: hedged (grade 4), or of a person under the last name alone (grade 3).
- Distractors come in degrees (`DEGREES`): `unrelated`; `same_type`, which names something of the kind asked for;
  `same_relation`, another subject's; `near_name`, that of a subject that shares a word of its name; `outdated`, what
  was true of the subject once, with a year.

Every passage's metadata has what `world.cases` gives and `facts`, the (relation, subject, object) of each sentence.
"""

from __future__ import annotations

import random
from dataclasses import replace

from ragguard.errors import InvalidInput
from ragguard.records import Passage
from ragguard.world import default_world
from ragguard.world.cases import Case, Counts, PassageKind, cases, graded_passage, state
from ragguard.world.facts import Fact, World
from ragguard.world.grammar import RELATIONS, VALUES, Split

DEGREES: tuple[PassageKind, ...] = ("unrelated", "same_type", "same_relation", "near_name", "outdated")
"""The kinds of distractors, from the least misleading to the most."""
SENTENCES = (1, 2, 2, 3)
"""How many sentences a passage has, drawn with equal chances."""
_PAST = {
    "profession": "in {y} {s} was a {o}",
    "spouse": "in {y} {s} was married to {o}",
    "employer": "in {y} {s} was employed by {o}",
    "base": "in {y} {s} was based in {o}",
    "product": "in {y} {s} was known for its {o}",
    "mayor": "in {y} the mayor of {s} was {o}",
    "firm_in": "in {y} {o} was based in {s}",
}
"""The sentence about the past for each relation; relations that never change have none."""


def hard_cases(
    n: int, seed: int = 0, hops: int = 1, split: Split = "heldout", *, gold: int = 3, each: int = 2
) -> list[Case]:
    """Makes `n` harder cases in the default world: several facts a passage, `gold` gold passages a hop, partial
    answers, and `each` distractors of every degree."""
    return make_hard_cases(default_world(split), n, seed, hops, split, gold, each)


def make_hard_cases(
    world: World, n: int, seed: int, hops: int, split: Split, gold: int = 3, each: int = 2
) -> list[Case]:
    """Makes `n` cases: `gold` gold passages a hop, one partial answer, and `each` distractors of every degree a hop.

    Equal arguments give equal cases. The first gold passages of a case are one a hop in the order of the hops, as
    `world.make_run` wants them; further ones follow.
    """
    if gold < 1:
        raise InvalidInput("gold", gold, "1 or more")
    if each < 0:
        raise InvalidInput("each", each, "0 or more")
    plain = cases(n, seed, hops, split, distractors=Counts(0, 0, 0, 0), world=world)
    return [
        _Hardener(world, random.Random(f"hard {seed} {hops} {split} {number}"), split).harden(
            case, gold, each
        )
        for number, case in enumerate(plain)
    ]


class _Hardener:
    """Writes the passages of one case."""

    def __init__(self, world: World, rng: random.Random, split: Split) -> None:
        self.world, self.rng, self.split = world, rng, split
        self.avoided: set[str] = set()

    def harden(self, case: Case, gold: int, each: int) -> Case:
        self.avoided = {name for fact in case.facts for name in (fact.subject, fact.object)}
        said: dict[str, Passage] = {}
        for number in range(gold * case.hops):
            hop = number % case.hops + 1
            while len(said) == number:  # another passage in the same words is not one more
                stated = self._passage(case.facts[hop - 1], "gold", hop, 4 if hop < case.hops else 5)
                said.setdefault(stated.text, stated)
        distractors = []
        for hop, fact in enumerate(case.facts, 1):
            distractors.append(self._partial(fact, hop, case))
            for kind in DEGREES:
                distractors += [
                    passage
                    for _ in range(each)
                    if (passage := self._distractor(kind, fact, hop, case)) is not None
                ]
        return replace(case, gold=list(said.values()), distractors=distractors)

    def _passage(
        self, fact: Fact, kind: PassageKind, hop: int, grade: int, said: str = "", about: Fact | None = None
    ) -> Passage:
        """Returns a passage whose point is `fact`, among other sentences, of which `about` may be one."""
        facts = [fact]
        sentences = [said or state(self.rng, fact, self.split)]
        for _ in range(self.rng.choice(SENTENCES) - 1):
            if about is not None and about not in facts and self.rng.random() < 0.5:
                other = about
            else:
                other = self._unrelated({one.relation for one in facts} if kind == "gold" else set())
            at = self.rng.randint(0, len(facts))
            facts.insert(at, other)
            sentences.insert(at, state(self.rng, other, self.split))
        more: dict[str, object] = {"facts": [[one.relation, one.subject, one.object] for one in facts]}
        if kind != "unrelated":
            more["hop"] = hop
        return graded_passage(self.rng, " ".join(sentences), fact, kind, grade, more)

    def _partial(self, fact: Fact, hop: int, case: Case) -> Passage:
        """Returns the fact, hedged; or half of the time, of a person, under the last name alone."""
        if RELATIONS[fact.relation].subject == "person" and self.rng.random() < 0.5:
            said = state(self.rng, replace(fact, subject=fact.subject.split(" ")[1]), self.split)
            return self._passage(fact, "partial", hop, 3, said)
        said = state(self.rng, fact, self.split, hedged=True)
        return self._passage(fact, "partial", hop, 4 if hop == case.hops else 3, said)

    def _distractor(self, kind: PassageKind, fact: Fact, hop: int, case: Case) -> Passage | None:
        """Returns a passage of that kind; None where the fact allows none, as a birthplace is never out of date."""
        others_about = self.world.others_about(fact, self.avoided)
        about = self.rng.choice(others_about) if others_about else None
        if kind == "unrelated":
            return self._passage(self._unrelated({one.relation for one in case.facts}), kind, hop, 1)
        if kind == "same_type":
            return self._passage(self._same_type(fact, case), kind, hop, 1)
        if kind == "outdated":
            if fact.relation not in _PAST:
                return None
            false = self.world.false_object(self.rng, fact, self.avoided)
            old = Fact(fact.relation, fact.subject, false)
            said = _PAST[fact.relation].format(y=self.rng.choice(VALUES["year"]), s=old.subject, o=old.object)
            return self._passage(old, kind, hop, 1, said[0].upper() + said[1:] + ".")
        subject_kind = RELATIONS[fact.relation].subject
        alike = [name for name in self.world.alike(subject_kind, fact.subject) if name not in self.avoided]
        others = [
            name for name in self.rng.sample(self.world.entities[subject_kind], 8) if name not in self.avoided
        ]
        if kind == "same_relation":
            others = [name for name in others if name not in alike] or others
        subjects = (alike or others) if kind == "near_name" else others
        fits = [
            Fact(fact.relation, subject, object_)
            for subject in self.rng.sample(subjects, len(subjects))
            if (object_ := self.world.facts.object(subject, fact.relation)) is not None
            and object_ not in self.avoided
        ]
        return self._passage(fits[0], kind, hop, 2, about=about) if fits else None

    def _same_type(self, fact: Fact, case: Case) -> Fact:
        """Returns a fact about somebody else in another relation, with an object of the kind asked for if possible."""
        wanted = RELATIONS[fact.relation].object
        names = {r.name for r in RELATIONS.values() if r.object == wanted and r.name != fact.relation}
        names -= {one.relation for one in case.facts}
        if not names:  # no other relation has objects of this kind: another one of the same kind of subject
            kind = RELATIONS[fact.relation].subject
            names = {r.name for r in RELATIONS.values() if r.subject == kind and r.name != fact.relation}
        return self.world.drawn(self.rng, self.avoided, lambda one: one.relation in names)

    def _unrelated(self, relations: set[str]) -> Fact:
        """Returns a fact about none of the case's names, in none of these relations."""
        avoided = relations | {"base", "firm_in"}
        return self.world.drawn(self.rng, self.avoided, lambda one: one.relation not in avoided)
