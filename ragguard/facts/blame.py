"""Finds the passage to blame for a wrong answer: the one that states the answer, or an earlier one that misled the run.

A hop asks for what an earlier passage named. If that passage was false, the next hop finds a true passage about the
wrong thing, and the answer repeats it:

    1.1  "Bo Lund founded Zantek Foods."      false: Ada Berg did
    2.1  "Bo Lund was born in West Ashwick."  true, and the wrong answer

Three things show that: a passage with the reference is about something else than the query's words; another passage has
other words in their place; or one that also answers the earlier query names something else. Without any, the passage
that states the answer is blamed. No model is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ragguard.facts.contradictions import contradictions
from ragguard.facts.run_facts import HopFacts, RunFacts
from ragguard.text.statements.names import names_in
from ragguard.text.statements.phrases import Phrase, findable, mentions

Place = tuple[int, int]
"""A passage as its hop and its rank, both from 1."""


class LeadPlaces(NamedTuple):
    """The words that a hop's query took from passages."""

    hop: int
    words: str
    places: Sequence[Place]


def leads_of(facts: RunFacts) -> Iterator[LeadPlaces]:
    """Yields what led to the queries of a run's hops, in order."""
    numbers = {hop.seen.step.id: hop.number for hop in facts.hops}
    for hop in facts.hops:
        for lead in hop.seen.step.led_by or ():
            places = [
                (numbers[source.step_id], source.position)
                for source in lead.sources
                if source.step_id in numbers
            ]
            if places:
                yield LeadPlaces(hop.number, lead.words, places)


def blamed(facts: RunFacts, stating: Iterable[Place]) -> frozenset[Place]:
    """Returns the passages to blame among those that state a wrong answer and those that led to them."""
    leads = [*leads_of(facts)]

    def first_cause(place: Place) -> set[Place]:
        text = _text(facts, place)
        for lead in leads:
            about_it = lead.hop == place[0] and mentions(text, findable([lead.words]))
            if about_it and _led_astray(facts, lead):
                return {cause for earlier in lead.places for cause in first_cause(earlier)}
        return {place}

    return frozenset(cause for place in stating for cause in first_cause(place))


def is_bridge(facts: RunFacts, answer: str) -> bool:
    """Returns whether an answer is only what a later hop asked about, and that hop found the reference, or nothing: a
    passage that states the answer then answered its own hop, not the question."""
    references, words = findable(facts.sought), findable([answer])
    for lead in leads_of(facts):
        if mentions(lead.words, words):
            hop = facts.hops[lead.hop - 1]
            found = any(mentions(hop.texts[rank - 1], references) for rank in hop.read)
            if found or hop.answers_its_query is False:
                return True
    return False


def _led_astray(facts: RunFacts, lead: LeadPlaces) -> bool:
    """Returns whether the words that a query took are not those that lead to the reference."""
    words, references = findable([lead.words]), findable(facts.sought)
    texts = [*dict.fromkeys([*(text for hop in facts.hops for text in hop.texts), *facts.gold])]
    right = [text for text in texts if mentions(text, references)]
    if any(mentions(text, words) for text in right):
        return False
    known = findable([*facts.sought, facts.question])
    if any(not mentions(name, known) for text in right for name in names_in(text)):
        return True
    claims = {_text(facts, place) for place in lead.places}
    idle = {
        text
        for hop in facts.hops
        for rank, text in enumerate(hop.texts, 1)
        if hop.verdicts.get(rank, "helps") != "helps"
    }
    asked = {name for hop, _ in lead.places for name in names_in(facts.hops[hop - 1].query)}
    rivals = [
        rival
        for rival in contradictions(
            facts.question, [lead.words], [text for text in texts if text not in idle]
        )
        if rival.first in claims and all(mentions(rival.second, findable([name])) for name in asked)
    ]
    return bool(rivals) or any(_answers_otherwise(facts.hops[hop - 1], words) for hop, _ in lead.places)


def _answers_otherwise(hop: HopFacts, words: Sequence[Phrase]) -> bool:
    """Returns whether a passage of a hop also answers its query, by its verdict, and names something else."""
    asked = findable([hop.query, *names_in(hop.query)])
    answering = (hop.texts[rank - 1] for rank in hop.read if hop.verdicts.get(rank) == "helps")
    return any(
        not mentions(text, words) and any(not mentions(name, asked) for name in names_in(text))
        for text in answering
    )


def _text(facts: RunFacts, place: Place) -> str:
    return facts.hops[place[0] - 1].texts[place[1] - 1]
