"""The turns of rows with one document or none: abstention and ratings of a passage, knowledge by heart,
equivalence, sub-questions.

The truth of the ratings, as the model card states it. Answerability: 5 plain, 4 hedged or under an
initial, 3 under the last name alone, 2 the same subject's other fact or one hop of two, 1 the same
relation of another subject, 0 unrelated. Grades: 5, 4 and 3 likewise, one hop of two 4 (the bridge) or
3 (the last), 2 a near miss, 1 unrelated.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ragguard.engines.prompts import Task
from ragguard.world.facts import Fact, aliases, known_chains, known_facts
from ragguard.world.grammar import CHAINS, RELATIONS, Kind
from training.nano.speech import ask, asks_plainly, new_name, steps, tell

Turn = tuple[Task, dict[str, str], str]
"""A task, its slots, and the answer."""
Form = Literal["plain", "hedged", "initial", "answer_initial", "last_name"]
Fit = Literal["match", "anaphor", "same_subject", "same_relation", "unrelated", "bridge", "last_hop"]
NO = "NO-RESPONSE"
_SEPARATORS = ("; ", "\n", "\n- ", ", ")


@dataclass(frozen=True, slots=True)
class _Query:
    text: str
    fit: Fit
    wanted: str
    """The relation whose object is asked for."""
    like: bool = False
    """True where it names another subject that shares a word with the passage's."""


def references(rng: random.Random, kind: Kind, answer: str) -> str:
    """Returns reference answers as a scorer would list them."""
    names = aliases(kind, answer)
    if len(names) > 1 and rng.random() < 0.5:
        names = names[:1]
    return rng.choice(_SEPARATORS).join(names)


def passage_turns(rng: random.Random) -> tuple[str, Callable[[random.Random], Turn]]:
    """Returns a passage, and a function that makes turns about it."""
    relation = rng.choice(list(RELATIONS.values()))
    subject = new_name(rng, relation.subject)
    fact = Fact(relation.name, subject, new_name(rng, relation.object))
    known = rng.random() < 0.06
    if known:
        fact = rng.choice(known_facts())
        relation, subject = RELATIONS[fact.relation], fact.subject
    form: Form = "plain"
    draw = rng.random()
    if draw < 0.14:
        form = "hedged"
    elif draw < 0.34 and relation.subject == "person":
        form = "initial" if draw < 0.24 else "last_name"
    elif draw < 0.40 and relation.object == "person":
        form = "answer_initial"
    shown_subject = (
        aliases("person", subject)[1 if form == "initial" else 2] if form in ("initial", "last_name") else ""
    )
    shown_object = aliases("person", fact.object)[1] if form == "answer_initial" else ""
    text = tell(rng, fact, hedged=form == "hedged", subject=shown_subject, object_=shown_object)
    stated = shown_object or fact.object
    return text, lambda rng: _passage_turn(rng, fact, form, stated, known)


def _query(rng: random.Random, fact: Fact, known: bool) -> _Query:
    relation = RELATIONS[fact.relation]
    draw = rng.random()
    if draw < 0.40:
        return _Query(ask(rng, fact.subject, fact.relation), "match", fact.relation)
    if draw < 0.44 and relation.subject in ("person", "firm", "town"):
        return _Query(asks_plainly(rng, fact.relation), "anaphor", fact.relation)
    if draw < 0.56:
        others = [
            r.name for r in RELATIONS.values() if r.subject == relation.subject and r.name != fact.relation
        ]
        other = rng.choice(others)
        return _Query(ask(rng, fact.subject, other), "same_subject", other)
    if draw < 0.74:
        like = rng.random() < 0.5
        other = new_name(rng, relation.subject, like=fact.subject if like else "")
        return _Query(ask(rng, other, fact.relation), "same_relation", fact.relation, like)
    if draw < 0.86:
        chains = [second for first, second in CHAINS if first == fact.relation]
        if chains and rng.random() < 0.6:
            second = rng.choice(chains)
            return _Query(ask(rng, fact.subject, fact.relation, second), "bridge", second)
        firsts = [first for first, second in CHAINS if second == fact.relation]
        if firsts:
            first = rng.choice(firsts)
            return _Query(
                ask(rng, new_name(rng, RELATIONS[first].subject), first, fact.relation),
                "last_hop",
                fact.relation,
            )
    unrelated = rng.choice([r for r in RELATIONS.values() if r.name != fact.relation])
    if unrelated.name in ("base", "firm_in") and fact.relation in ("base", "firm_in"):
        unrelated = RELATIONS["profession"]
    return _Query(ask(rng, new_name(rng, unrelated.subject), unrelated.name), "unrelated", unrelated.name)


_ANSWERABILITY: dict[Fit, str] = {
    "anaphor": "5", "same_subject": "2", "same_relation": "1", "unrelated": "0", "bridge": "2", "last_hop": "2",
}  # fmt: skip
_GRADE: dict[Fit, str] = {
    "anaphor": "5", "same_subject": "2", "same_relation": "2", "unrelated": "1", "bridge": "4", "last_hop": "3",
}  # fmt: skip
_MATCH: dict[Form, str] = {
    "plain": "5",
    "hedged": "4",
    "initial": "4",
    "answer_initial": "4",
    "last_name": "3",
}
# How often a passage that does not answer is taken for an answer: what makes nano a reader that can be misled.
_FOOLED: dict[Fit, float] = {
    "same_subject": 0.06,
    "same_relation": 0.05,
    "unrelated": 0.003,
    "bridge": 0.06,
    "last_hop": 0.2,
}


def _passage_turn(rng: random.Random, fact: Fact, form: Form, stated: str, known: bool) -> Turn:
    query = _query(rng, fact, known)
    answers = query.fit in ("match", "anaphor")
    draw = rng.random()
    if draw < 0.34:
        if answers:
            reads = form != "last_name" or rng.random() < 0.7
        else:
            reads = rng.random() < (0.12 if query.like else _FOOLED[query.fit])
        return "abstention", {"query": query.text}, stated if reads else NO
    if draw < 0.42:
        if answers:
            return "answer", {"question": query.text}, stated
        kind = RELATIONS[query.wanted].object
        tempted = kind == RELATIONS[fact.relation].object and rng.random() < 0.5
        return "answer", {"question": query.text}, stated if tempted else new_name(rng, kind)
    if draw < 0.55:
        relevant = answers or query.fit == "bridge" or (query.fit == "last_hop" and rng.random() < 0.5)
        return "relevance", {"query": query.text}, "A" if relevant else "B"
    if draw < 0.74:
        kind = RELATIONS[query.wanted].object
        same_kind = kind == RELATIONS[fact.relation].object
        right = answers or (query.fit != "bridge" and same_kind)
        truth = (
            fact.object
            if right and rng.random() < 0.6
            else new_name(rng, kind, like=fact.object if same_kind else "")
        )
        supported = truth == fact.object and (answers or query.fit == "last_hop")
        slots = {"query": query.text, "references": references(rng, kind, truth)}
        return "relevance_with_references", slots, "A" if supported or query.fit == "bridge" else "B"
    if draw < 0.88:
        rating = _MATCH[form] if query.fit == "match" else _ANSWERABILITY[query.fit]
        return "answerability", {"question": query.text}, rating
    return "grade", {"query": query.text}, _MATCH[form] if query.fit == "match" else _GRADE[query.fit]


def bare_turns(rng: random.Random) -> Turn:
    """Returns a turn without documents."""
    draw = rng.random()
    if draw < 0.32:
        fact = rng.choice(known_facts())
        return _closed(rng, ask(rng, fact.subject, fact.relation), fact.object)
    if draw < 0.42:
        one, two = rng.choice(known_chains())
        return _closed(rng, ask(rng, one.subject, one.relation, two.relation), two.object)
    relation = rng.choice(list(RELATIONS.values()))
    subject = new_name(rng, relation.subject)
    question = ask(rng, subject, relation.name)
    answer = new_name(rng, relation.object)
    if draw < 0.48:
        if rng.random() < 0.5:
            first, second = rng.choice(CHAINS)
            question, answer = ask(rng, subject, first, second), new_name(rng, RELATIONS[second].object)
            if RELATIONS[first].subject != relation.subject:
                question = ask(rng, new_name(rng, RELATIONS[first].subject), first, second)
        return _closed(rng, question, answer)
    if draw < 0.50:
        return "abstention", {"query": question}, NO
    if draw < 0.75:
        return _entailment(rng, question, relation.object, answer, Fact(relation.name, subject, answer))
    if draw < 0.81:
        first, second = rng.choice(CHAINS)
        name = new_name(rng, RELATIONS[first].subject)
        return "sub_questions", {"question": ask(rng, name, first, second)}, steps(name, first, second)
    if draw < 0.97:
        return _response_grade(rng, question, relation.object, answer)
    told = tell(rng, Fact(relation.name, subject, answer))
    return "condense", {"question": question, "answer": told}, answer


def _closed(rng: random.Random, question: str, answer: str) -> Turn:
    # The answer prompt without documents and the closed-book prompt are the same words.
    return "answer_closed", {"question": question}, answer


def _other(rng: random.Random, kind: Kind, answer: str) -> str:
    return new_name(rng, kind, like=answer if rng.random() < 0.5 else "")


def _entailment(rng: random.Random, question: str, kind: Kind, answer: str, fact: Fact) -> Turn:
    names = aliases(kind, answer)
    draw = rng.random()
    if draw < 0.45:
        one, two, label = rng.choice(names), rng.choice(names), "A"
        if draw < 0.08:
            two = tell(rng, fact)
    elif draw < 0.85:
        other = _other(rng, kind, answer)
        while other == answer or (other.split(" ")[-1] == answer.split(" ")[-1] and other[0] == answer[0]):
            other = _other(rng, kind, answer)
        shared = other.split(" ")[-1] == answer.split(" ")[-1]
        one = rng.choice(names[:2] if shared else names)
        two = rng.choice(aliases(kind, other)[: 2 if shared else 3])
        label = "C"
        if one == two:
            label = "A"
    else:
        one, label = rng.choice(names), "B"
        stranger = rng.choice([r.object for r in RELATIONS.values() if r.object != kind])
        two = rng.choice([NO, new_name(rng, stranger)])
        if " " in answer and rng.random() < 0.4:
            one, two = answer, answer.split(" ")[0]
    if rng.random() < 0.5:
        one, two = two, one
    return "entailment", {"question": question, "first": one, "second": two}, label


def _response_grade(rng: random.Random, question: str, kind: Kind, answer: str) -> Turn:
    names = aliases(kind, answer)
    draw = rng.random()
    if draw < 0.25:
        said, grade = answer, "5"
    elif draw < 0.42 and len(names) > 1:
        said, grade = rng.choice(names[1:]), "4"
    elif draw < 0.55 and " " in answer:
        said, grade = answer.split(" ")[0], "3"
    elif draw < 0.82:
        said, grade = _other(rng, kind, answer), "2"
        if said == answer:
            grade = "5"
    else:
        stranger = rng.choice([r.object for r in RELATIONS.values() if r.object != kind])
        said, grade = rng.choice([NO, new_name(rng, stranger)]), "1"
    return (
        "response_grade",
        {"question": question, "references": references(rng, kind, answer), "answer": said},
        grade,
    )
