"""Labelled cases from a world: a question, passages that answer it, passages that do not, and the truth about each; and
runs of an agent over such cases.

Every passage's metadata has `kind` (`gold`, `same_relation`, `same_subject`, `contradiction`,
`unrelated`), `grade` (1..5 for the question), the fact it states (`subject`, `relation`, `object`),
`harm` (how much it can mislead: 1 states a falsehood, 0.5 comes close, 0 does neither), and, on gold
and near misses, `hop` (from 1): the hop it serves, or comes close to.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from ragguard.errors import InvalidInput
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.runtime.arguments import whole_number
from ragguard.world.facts import Fact, World, aliases, known_chains, known_facts, known_world
from ragguard.world.grammar import (
    CHAINS,
    RELATIONS,
    Split,
    fact_phrasings,
    question_phrasings,
    sentence,
)

PassageKind = Literal[
    "gold", "same_relation", "same_subject", "contradiction", "unrelated",
    "partial", "same_type", "near_name", "outdated",
]  # fmt: skip
"""The role of a passage in a case; the last four are in harder cases alone, which studies make."""
_TRUTH: dict[PassageKind, tuple[float, int]] = {
    "gold": (0.0, 5),
    "same_relation": (0.5, 2),
    "same_subject": (0.5, 2),
    "contradiction": (1.0, 1),
    "unrelated": (0.0, 1),
    "partial": (0.0, 3),
    "same_type": (0.25, 1),
    "near_name": (0.75, 2),
    "outdated": (1.0, 1),
}
"""How much a passage of a kind can mislead, and its grade where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Case:
    """A question with its answer, its passages and the facts behind it."""

    question: str
    references: list[str]
    """The answer and its aliases, the full form first."""
    gold: list[Passage]
    """The passages of the hops, in the order of the hops: `gold[i]` is what `sub_questions[i]` needs. Harder cases
    have further ones behind these."""
    distractors: list[Passage]
    sub_questions: list[str]
    """The query of each hop, from the second on with the name in it that the hop before leads to."""
    hops: int
    known: bool = False
    """True where nano knows the answer by heart."""
    bridge: str = ""
    """The entity between the first two hops."""
    facts: tuple[Fact, ...] = field(default=(), repr=False)

    @property
    def answer(self) -> str:
        return self.references[0]

    def of_kind(self, kind: PassageKind) -> list[Passage]:
        """Returns the passages of a kind, gold ones included."""
        return [passage for passage in self.pool() if passage.metadata["kind"] == kind]

    def pool(self) -> list[Passage]:
        """Returns all passages of the case, graded for its question, in the form of `Run.pool`."""
        return [*self.gold, *self.distractors]


@dataclass(frozen=True, slots=True)
class Counts:
    """How many distractors of each kind a case has for each of its hops."""

    same_relation: int = 2
    same_subject: int = 2
    contradiction: int = 1
    unrelated: int = 3


@lru_cache(maxsize=4)
def default_world(split: Split = "heldout") -> World:
    """Returns the world whose cases are made unless another one is given."""
    return World(0, split)


def cases(
    n: int,
    seed: int = 0,
    hops: int = 1,
    split: Split = "heldout",
    known: bool = False,
    distractors: Counts | None = None,
    *,
    world: World | None = None,
) -> list[Case]:
    """Makes `n` labelled cases of one, two or three hops; `known=True`: about facts that nano knows by heart.

    Equal arguments give equal cases, and fewer cases are the first of more.
    """
    if hops not in ((1, 2) if known else (1, 2, 3)):
        raise InvalidInput(
            "hops", hops, "1 or 2: nano knows no three hops by heart" if known else "1, 2 or 3"
        )
    whole_number("n", n, 0)
    world, counts = world or default_world(split), distractors or Counts()
    rngs = (random.Random(f"case {seed} {hops} {split} {known} {i}") for i in range(n))
    return [_CaseMaker(world, rng, split, counts).make(hops, known) for rng in rngs]


def state(rng: random.Random, fact: Fact, split: Split, *, hedged: bool = False) -> str:
    """Returns a fact as a sentence in the phrasings of a split."""
    opening, core = rng.choice(fact_phrasings(RELATIONS[fact.relation], split, hedged=hedged))
    return sentence(opening, core, fact.subject, fact.object)


def _question(rng: random.Random, facts: Sequence[Fact], split: Split) -> str:
    """Returns the question that leads from the subject of the first fact to the object of the last."""
    relations = [RELATIONS[fact.relation] for fact in facts]
    opening, core = rng.choice(question_phrasings(relations, split))
    return sentence(opening, core, facts[0].subject, end="?")


def graded_passage(
    rng: random.Random, text: str, fact: Fact, kind: PassageKind, grade: int, more: Mapping[str, object]
) -> Passage:
    """Returns a passage whose point is a fact, with the truth about it and `more` in its metadata."""
    metadata = {
        "kind": kind, "grade": grade, "harm": _TRUTH[kind][0],
        "subject": fact.subject, "relation": fact.relation, "object": fact.object, **more,
    }  # fmt: skip
    return Passage(text, id=f"{rng.getrandbits(48):012x}", metadata=metadata, grade=grade)


class _CaseMaker:
    def __init__(self, world: World, rng: random.Random, split: Split, counts: Counts) -> None:
        self.world, self.rng, self.split, self.counts = world, rng, split, counts

    def make(self, hops: int, known: bool) -> Case:
        facts = self._facts(hops, known)
        question = _question(self.rng, facts, self.split)
        each = (_question(self.rng, [fact], self.split) for fact in facts)
        sub_questions = list(each) if hops > 1 else [question]
        gold = [self._passage(fact, "gold", hop, 4 if hop < hops else 5) for hop, fact in enumerate(facts, 1)]
        used = {name for fact in facts for name in (fact.subject, fact.object)}
        distractors = [
            passage for hop, fact in enumerate(facts, 1) for passage in self._near(fact, hop, used)
        ]
        asked = {fact.relation for fact in facts} | {"base", "firm_in"}
        for _ in range(self.counts.unrelated):
            fact = self.world.drawn(self.rng, used, lambda one: one.relation not in asked)
            distractors.append(self._passage(fact, "unrelated", 0))
        kind = RELATIONS[facts[-1].relation].object
        return Case(
            question, aliases(kind, facts[-1].object), gold, distractors, sub_questions=sub_questions, hops=hops,
            known=known, bridge=facts[0].object if hops > 1 else "", facts=facts,
        )  # fmt: skip

    def _facts(self, hops: int, known: bool) -> tuple[Fact, ...]:
        if known:
            return self.rng.choice(known_chains()) if hops == 2 else (self.rng.choice(known_facts()),)
        if hops == 3:
            return self._long_chain()
        if hops == 2:
            return self.rng.choice(self.world.chains)
        return (self.rng.choice(self.world.all_facts),)

    def _long_chain(self) -> tuple[Fact, Fact, Fact]:
        """Returns three facts, each about the object of the one before, that lead to nothing they came from."""
        while True:
            one, two = self.rng.choice(self.world.chains)
            relation = self.rng.choice([after for before, after in CHAINS if before == two.relation] or [""])
            object_ = self.world.facts.object(two.object, relation)
            has_noun = any(not noun.startswith("{s}") for noun in RELATIONS[two.relation].nouns)
            if has_noun and object_ is not None and object_ not in (one.subject, one.object):
                return one, two, Fact(relation, two.object, object_)

    def _passage(self, fact: Fact, kind: PassageKind, hop: int, grade: int = 0) -> Passage:
        text = state(self.rng, fact, self.split)
        return graded_passage(
            self.rng, text, fact, kind, grade or _TRUTH[kind][1], {"hop": hop} if hop else {}
        )

    def _near(self, fact: Fact, hop: int, used: set[str]) -> list[Passage]:
        near: list[Passage] = []
        taken, kind = {fact.subject, fact.object}, RELATIONS[fact.relation].subject
        for i in range(self.counts.same_relation):
            # Every other one shares a word of the name, if any does.
            alike = self.world.alike(kind, fact.subject) if i % 2 == 0 else ()
            names = [name for name in alike if name not in taken] or [
                name for name in self.rng.sample(self.world.entities[kind], 4) if name not in taken
            ]
            other = self.rng.choice(names)
            taken.add(other)
            its = self.world.facts.object(other, fact.relation) or self._false(fact)
            near.append(self._passage(Fact(fact.relation, other, its), "same_relation", hop))
        home = known_world() if fact in known_facts() else self.world
        # A fact that answers another hop is gold, however close it stands here.
        others = home.others_about(fact, used)
        chosen = self.rng.sample(others, min(self.counts.same_subject, len(others)))
        near += [self._passage(true, "same_subject", hop) for true in chosen]
        for _ in range(self.counts.contradiction):
            lie = Fact(fact.relation, fact.subject, self._false(fact))
            near.append(self._passage(lie, "contradiction", hop))
        return near

    def _false(self, fact: Fact) -> str:
        return self.world.false_object(self.rng, fact, {fact.subject})


def make_run(
    case: Case,
    *,
    seed: int = 0,
    junk: int = 2,
    useless_steps: int = 0,
    miss: tuple[int, ...] = (),
    mislead: tuple[int, ...] = (),
    parallel: bool = False,
    answer: str | None = None,
    references: bool = True,
) -> Run:
    """Makes a run over a case's sub-questions.

    Each step retrieves its gold passage and `junk` distractors (never contradicting ones). `miss` names
    hops (1-based) whose gold passage is left out, `mislead` hops where a contradicting passage stands
    in its place; `useless_steps` unrelated steps are mixed in; `parallel` puts all steps in one turn.
    Each step's metadata says `role`: `gold`, `missed`, `misled` or `useless`. `answer` defaults to the
    right one, to the false one where a hop is misled.
    """
    false = {passage.metadata["hop"]: passage for passage in reversed(case.of_kind("contradiction"))}
    for name, hops, able in (("miss", miss, range(1, case.hops + 1)), ("mislead", mislead, false)):
        if not set(hops) <= set(able):
            raise InvalidInput(name, hops, f"hops of the case for which it has such passages: {sorted(able)}")
    rng = random.Random(f"run {seed} {case.question}")
    truth = case.answer
    steps: list[RetrievalStep] = []
    for hop, query in enumerate(case.sub_questions, 1):
        about = [p for p in case.distractors if p.metadata.get("hop", hop) == hop]
        near = [p for p in about if p.metadata["kind"] != "contradiction"]
        passages = rng.sample(near, min(junk, len(near)))
        role = "misled" if hop in mislead else "missed" if hop in miss else "gold"
        if role != "missed":
            passages.append(false[hop] if role == "misled" else case.gold[hop - 1])
        if role == "misled" and hop == case.hops:
            truth = str(false[hop].metadata["object"])
        rng.shuffle(passages)
        steps.append(_step(query, passages, role))
    for _ in range(useless_steps):
        unrelated = case.of_kind("unrelated")
        passages = rng.sample(unrelated, min(max(1, junk), len(unrelated)))
        steps.insert(rng.randint(0, len(steps)), _step(case.question, passages, "useless"))
    now = time.time_ns()
    run = Run(
        question=case.question,
        references=list(case.references) if references else None,
        answer=truth if answer is None else answer,
        steps=steps,
        sub_questions=list(case.sub_questions),
        pool=case.pool(),
        started_ns=now,
        ended_ns=now + len(steps) * 10_000_000,
    )
    for index, step in enumerate(steps):
        step.run_id, step.index, step.turn = run.id, index, 0 if parallel else index
        step.started_ns = now + index * 10_000_000
        step.ended_ns = step.started_ns + 5_000_000
    return run


def _step(query: str, passages: list[Passage], role: str) -> RetrievalStep:
    return RetrievalStep(query=query, passages=passages, candidates=list(passages), metadata={"role": role})
