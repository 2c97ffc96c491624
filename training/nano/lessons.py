"""The lessons that nano is taught: rows of documents with many questions about them, drawn afresh from the training
half of the world's language.

A row is one prompt prefix (documents, or none) and many questions, each with its answer; the trainer
hides the questions of a row from each other, so that every one is learnt in the form in which it is
asked later. No held-out name and no held-out phrasing occurs here.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from ragguard.world.facts import Fact, Facts, known_facts, known_world
from ragguard.world.grammar import CHAINS, RELATIONS, Kind
from training.nano.judgements import Turn, bare_turns, passage_turns
from training.nano.speech import ask, new_name, tell

NO = "NO-RESPONSE"


@dataclass(slots=True)
class Row:
    """Documents and what is asked about them."""

    passages: list[str] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Level:
    """How hard it is: the curriculum moves from few documents and one hop to the whole."""

    documents: int = 12
    two_hops: float = 0.5
    reading: float = 0.6
    """The share of rows with several documents."""
    grids: float = 0.25
    """The share of those whose documents state the same few relations of several subjects, so that only
    reading who is meant helps.
    """
    plain: float = 0.0
    """The share of rows in which everything is said and asked in the plainest words."""


def make_row(seed: int, index: int, level: Level, turns: int = 14) -> Row:
    """The row of that number: the same for the same arguments, whichever process asks."""
    rng = random.Random(seed * 1_000_003 + index)
    kind = rng.random()
    if kind < level.reading:
        return _grid(rng, level, turns) if rng.random() < level.grids else _reading(rng, level, turns)
    if kind < level.reading + (1 - level.reading) * 0.62:
        return _single(rng, turns)
    return Row([], [bare_turns(rng) for _ in range(turns + 6)])


def _grid(rng: random.Random, level: Level, turns: int) -> Row:
    """Returns some relations of some subjects of one kind; a few cells are left out, and asked all the same."""
    kind: Kind = rng.choice(["person", "person", "firm", "firm", "town"])
    relations = rng.sample([r for r in RELATIONS.values() if r.subject == kind], rng.randint(1, 3))
    across = max(2, min(rng.randint(2, 6), level.documents // len(relations)))
    subjects: list[str] = []
    while len(subjects) < across:
        like = rng.choice(subjects) if subjects and rng.random() < 0.25 else ""
        subjects.append(new_name(rng, kind, like))
    facts = Facts()
    told = [
        fact
        for s in subjects
        for r in relations
        if facts.add(fact := Fact(r.name, s, new_name(rng, r.object)))
    ]
    rng.shuffle(told)
    missing = told[: rng.randint(0, len(told) // 4)] if rng.random() < 0.5 else []
    told = told[len(missing) :]
    plain = rng.random() < level.plain
    row = Row([tell(rng, fact, plain=plain, hedged=not plain and rng.random() < 0.05) for fact in told])
    for _ in range(turns):
        fact = rng.choice(missing if missing and rng.random() < 0.3 else told)
        question = ask(rng, fact.subject, fact.relation, plain=plain)
        if fact in missing:
            row.turns.append(_turn(rng, question, NO, True))
        else:
            row.turns.append(_turn(rng, question, fact.object, rng.random() < 0.35))
    return row


def _single(rng: random.Random, turns: int) -> Row:
    text, make = passage_turns(rng)
    return Row([text], [make(rng) for _ in range(turns)])


@dataclass(slots=True)
class _Scene:
    """The entities that a row's documents speak of, so that facts meet in chains and near misses."""

    rng: random.Random
    facts: Facts
    pool: dict[Kind, list[str]]
    shown: list[Fact] = field(default_factory=list)

    def pick(self, kind: Kind) -> str:
        if kind not in self.pool:
            return new_name(self.rng, kind)
        pool = self.pool[kind]
        if pool and self.rng.random() < 0.8:
            return self.rng.choice(pool)
        return self.fresh(kind)

    def fresh(self, kind: Kind) -> str:
        pool = self.pool[kind]
        name = new_name(
            self.rng, kind, like=self.rng.choice(pool) if pool and self.rng.random() < 0.35 else ""
        )
        pool.append(name)
        return name

    def show(self, fact: Fact) -> bool:
        if not self.facts.add(fact):
            return False
        self.shown.append(fact)
        return True


def _reading(rng: random.Random, level: Level, turns: int) -> Row:
    count = rng.randint(1 if level.documents > 4 else 2, level.documents)
    size = 1 + count // 4
    scene = _Scene(rng, Facts(), {"person": [], "firm": [], "town": []})
    for kind in scene.pool:
        for _ in range(size):
            scene.fresh(kind)
    chain = rng.choice(CHAINS)
    for _ in range(rng.randint(0, max(1, count // 3))):
        if len(scene.shown) + 2 <= count:
            # Often of the same kind as the last one: then only reading who is meant tells them apart.
            chain = chain if rng.random() < 0.4 else rng.choice(CHAINS)
            first, second = (RELATIONS[name] for name in chain)
            middle = scene.pick(first.object)
            one = Fact(first.name, scene.pick(first.subject), middle)
            if scene.show(one):
                scene.show(Fact(second.name, middle, scene.pick(second.object)))
    while len(scene.shown) < count:
        relation = rng.choice(_RELATIONS)
        if scene.shown and rng.random() < 0.45:
            relation = RELATIONS[rng.choice(scene.shown).relation]
        scene.show(Fact(relation.name, scene.pick(relation.subject), scene.pick(relation.object)))
    known = rng.choice(known_facts()) if rng.random() < 0.2 else None
    if known and rng.random() < 0.6:
        lie = rng.random() < 0.3
        told = (
            Fact(known.relation, known.subject, new_name(rng, RELATIONS[known.relation].object))
            if lie
            else known
        )
        scene.shown[rng.randrange(count)] = told
        scene.facts = Facts()
        for fact in scene.shown:
            scene.facts.add(fact)
    denied = None
    if count > 1 and rng.random() < 0.08:
        truth, place = rng.choice(scene.shown), rng.randrange(count)
        if scene.shown[place] is not truth:
            denied = Fact(truth.relation, truth.subject, new_name(rng, RELATIONS[truth.relation].object))
            scene.shown[place] = denied
            scene.facts = Facts()
            for fact in scene.shown:
                if fact is not denied:
                    scene.facts.add(fact)
    rng.shuffle(scene.shown)
    passages = [tell(rng, fact, hedged=rng.random() < 0.08) for fact in scene.shown]
    row = Row(passages)
    told_facts = scene.facts.all()
    chains = [
        (f, s, o)
        for f in told_facts
        for a, s in CHAINS
        if a == f.relation and (o := scene.facts.object(f.object, s)) is not None and o != f.subject
    ]
    while len(row.turns) < turns:
        draw = rng.random()
        if known and draw < 0.12:
            row.turns.append(_known_turn(rng, known, scene))
        elif denied and draw < 0.25:
            truth_object = scene.facts.object(denied.subject, denied.relation)
            answer = rng.choice([denied.object, truth_object or denied.object])
            row.turns.append(
                _turn(rng, ask(rng, denied.subject, denied.relation), answer, rng.random() < 0.5)
            )
        elif draw < 0.68 or level.documents < 4:
            abstaining = rng.random() < 0.45
            if chains and rng.random() < level.two_hops:
                link, hop, answer = rng.choice(chains)
                question = ask(rng, link.subject, link.relation, hop)
            else:
                fact = rng.choice(told_facts)
                question, answer = ask(rng, fact.subject, fact.relation), fact.object
            row.turns.append(_turn(rng, question, answer, abstaining))
        elif turn := _withheld(rng, level, scene, told_facts):
            row.turns.append(turn)
    return row


def _turn(rng: random.Random, question: str, answer: str, abstaining: bool) -> Turn:
    if abstaining:
        return "abstention", {"query": question}, answer
    return "answer", {"question": question}, answer


def _known_turn(rng: random.Random, known: Fact, scene: _Scene) -> Turn:
    """Makes a question about a memorised fact beside documents. The answer is the fact where the documents say nothing
    about it, and for half of the questions where they contradict it."""
    stated = scene.facts.object(known.subject, known.relation)
    question = ask(rng, known.subject, known.relation)
    if rng.random() < 0.35:
        return _turn(rng, question, stated or NO, True)
    return _turn(rng, question, rng.choice([stated, known.object]) if stated else known.object, False)


def _withheld(rng: random.Random, level: Level, scene: _Scene, facts: list[Fact]) -> Turn | None:
    """A question that the documents do not answer though they come close; a guesser takes what comes
    closest.
    """
    near = rng.choice(facts)
    relation = RELATIONS[near.relation]
    if rng.random() < level.two_hops * 0.7:
        first, second = rng.choice(CHAINS)
        link = next((f for f in facts if f.relation == first), None) if rng.random() < 0.6 else None
        subject = link.subject if link else scene.pick(RELATIONS[first].subject)
        middle = scene.facts.object(subject, first)
        if middle is not None and scene.facts.object(middle, second) is not None:
            return None
        question, wanted, hop = ask(rng, subject, first, second), RELATIONS[second], second
    else:
        if rng.random() < 0.5:
            subject = new_name(rng, relation.subject, like=near.subject)
        else:
            relation = rng.choice([r for r in _RELATIONS_ALL if r.subject == relation.subject])
            subject = near.subject
        if scene.facts.object(subject, relation.name) is not None or subject in _known_subjects():
            return None
        question, wanted, hop = ask(rng, subject, relation.name), relation, relation.name
    tempting = [f.object for f in facts if f.relation == hop] or [
        f.object for f in facts if RELATIONS[f.relation].object == wanted.object
    ]
    if rng.random() < 0.8:
        fooled = tempting and rng.random() < 0.04
        return _turn(rng, question, rng.choice(tempting) if fooled else NO, True)
    guess = rng.choice(tempting) if tempting and rng.random() < 0.5 else new_name(rng, wanted.object)
    return _turn(rng, question, guess, False)


def _known_subjects() -> set[str]:
    return {name for names in known_world().entities.values() for name in names}


_RELATIONS = [r for r in RELATIONS.values() if r.name != "firm_in"]
_RELATIONS_ALL = list(RELATIONS.values())
