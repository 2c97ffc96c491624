"""Finds which earlier hop led to a hop's query, by the words that the query took from a passage. No model is asked.

A query takes words from a passage that the model got in an earlier turn if a run of its words stands in the passage,
and one of these is new: neither the question nor an earlier query has it. The run has to hold a name or a number (a new
word that the passage writes with a capital or a digit), or several new words. Rare words weigh more; so does a passage
that has the words of the query by which it was found, since it is likelier to answer it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ragguard.facts.steps import numbered, view_step
from ragguard.records import Lead, LeadSource, RetrievalStep, Run
from ragguard.text.language import COMMON
from ragguard.text.letters import without_accents
from ragguard.text.words import POSSESSIVE, SPACELESS

OLD = 0.3
"""The weight of a word that is not new; chosen, as `TIE`, on one half of MuSiQue's questions (`studies/led_by.py`)."""
TIE = 0.9
"""The share of the best weight from which another passage is as likely a source."""
_NEW_WORDS = 2
"""The least new words of a run without a name or a number."""
_NEW_SIGNS = 3
"""The least new signs of a run in a script without spaces and capitals, in which each sign counts as a word."""
_MOST_TIED = 5
"""The most passages that are named as equally likely sources."""
_WORD = re.compile(rf"{SPACELESS.pattern}|(?:(?!{SPACELESS.pattern})[^\W_])+")


class _Word(NamedTuple):
    """A word of a text."""

    form: str
    """The word without case and accents."""
    named: bool
    """True if it begins with a capital or holds a digit."""
    start: int
    end: int


@dataclass(slots=True)
class _Read:
    """A passage that the model got in an earlier turn."""

    source: LeadSource
    query: Collection[str]
    """The content words of the query that found it."""
    text: str
    plain: str
    """The text without case and accents."""
    words: Sequence[_Word] = ()
    """The text's words; found only if the passage has a new word of a query."""


@dataclass(slots=True)
class _WordRun:
    """A run of a query's words that stands in a passage."""

    source: LeadSource
    start: int
    end: int
    """The run's words, as a range of the query's words."""
    weight: float


def with_leads(run: Run) -> Run:
    """Returns a run whose steps all have `led_by`: the run itself, or a copy in which what was missing is filled in."""
    if all(step.led_by is not None for step in run.steps):
        return run
    found = {step.id: leads for step, leads in _leads(run)}
    steps = [replace(step, led_by=found[step.id]) if step.led_by is None else step for step in run.steps]
    return replace(run, steps=steps)


def led_from(step: RetrievalStep) -> list[str]:
    """Returns the ids of the steps without which a step's query could not have been asked: the only source of its
    weightiest words, and the only sources of further words that the query writes as a name or number.

    Of words with several sources nobody can say which led there.
    """
    # Of MuSiQue's dependent hops, half 0, further names were right 16 times of 16, other further words never of 5.
    found = [
        lead.steps[0]
        for at, lead in enumerate(step.led_by or ())
        if len(lead.steps) == 1 and (not at or any(word.named for word in _words(lead.words)))
    ]
    return list(dict.fromkeys(found))


def _leads(run: Run) -> Iterator[tuple[RetrievalStep, list[Lead]]]:
    """Yields each step with what led to its query."""
    known = {word.form for word in _words(run.question)}
    earlier: list[_Read] = []
    pending: list[tuple[RetrievalStep, list[_Word]]] = []
    latest = None
    for turn, step in numbered(run.steps):
        if turn != latest:  # what steps of one turn read cannot have led to each other
            texts = {one.text for one in earlier}
            for done, words in pending:
                earlier += _read(done, words, texts)
                known |= {word.form for word in words}
            pending, latest = [], turn
        words = _words(step.query)
        yield step, _leads_of(step.query, words, known, earlier)
        pending.append((step, words))


def _read(step: RetrievalStep, query: Sequence[_Word], known: Collection[str]) -> Iterator[_Read]:
    """Yields the passages that the model got of a step, each text once, without those that it knew from an earlier
    turn."""
    content = {word.form for word in query} - COMMON
    seen = view_step(step, 0)
    texts = set(known)
    for at in seen.got:
        passage = seen.all[at]
        if passage.text.strip() and passage.text not in texts:
            texts.add(passage.text)
            yield _Read(LeadSource(step.id, at + 1, passage.id), content, passage.text, _plain(passage.text))


def _leads_of(
    query: str, words: Sequence[_Word], known: Collection[str], earlier: Sequence[_Read]
) -> list[Lead]:
    """Returns what led to a query, the weightiest words first."""
    new = {at for at, word in enumerate(words) if word.form not in known and not _is_common(word.form)}
    holders = [one for one in earlier if any(words[at].form in one.plain for at in new)]
    if not holders:
        return []
    asked = {word.form for word in words} | {form for one in holders for form in one.query}
    rarity = {form: _rarity(sum(form in one.plain for one in earlier), len(earlier)) for form in asked}
    rarity |= dict.fromkeys(asked & COMMON, 0.0)
    leads: list[Lead] = []
    while new and (taken := [one for read in holders if (one := _best_run(words, new, read, rarity))]):
        best = max(taken, key=lambda one: one.weight)
        same = [one for one in taken if one.weight >= TIE * best.weight and _overlap(one, best)]
        same.sort(key=lambda one: -one.weight)
        first, last = _without_common(words, best)
        text = query[words[first].start : words[last].end]
        leads.append(Lead(text, [one.source for one in same[:_MOST_TIED]]))
        new -= {at for one in same for at in range(one.start, one.end)}
    return leads


def _best_run(
    words: Sequence[_Word], new: Collection[int], read: _Read, rarity: Mapping[str, float]
) -> _WordRun | None:
    """Returns the weightiest run of a query's words with a new one that stands in a passage; None for none."""
    read.words = read.words or _words(read.text)
    places: dict[str, list[int]] = {}
    forms = {word.form for word in words}
    for place, word in enumerate(read.words):
        if word.form in forms:
            places.setdefault(word.form, []).append(place)
    answers = 1 + sum(rarity[form] for form in read.query if form in read.plain) / (
        sum(rarity[form] for form in read.query) or 1.0
    )
    best: _WordRun | None = None
    for start in range(len(words)):
        for place in places.get(words[start].form, ()):
            if start and place and words[start - 1].form == read.words[place - 1].form:
                continue  # a part of a longer run
            length = 1
            while (
                start + length < len(words)
                and place + length < len(read.words)
                and words[start + length].form == read.words[place + length].form
            ):
                length += 1
            run = range(start, start + length)
            fresh = [at for at in run if at in new]
            if not fresh or not _counts([read.words[place + at - start] for at in fresh]):
                continue
            weight = answers * sum(rarity[words[at].form] * (1 if at in new else OLD) for at in run)
            if best is None or weight > best.weight:
                best = _WordRun(read.source, start, start + length, weight)
    return best


def _counts(new: Sequence[_Word]) -> bool:
    """Returns whether the new words of a run, as the passage writes them, are more than chance."""
    signs = sum(SPACELESS.fullmatch(word.form) is not None for word in new)
    return any(word.named for word in new) or len(new) - signs >= _NEW_WORDS or signs >= _NEW_SIGNS


def _is_common(form: str) -> bool:
    """Returns whether a word says nothing about a subject: one of the most common, or a single letter."""
    return form in COMMON or (len(form) == 1 and form.isascii() and form.isalpha())


def _rarity(among: int, of: int) -> float:
    return math.log((of + 1) / max(among, 0.5))


def _overlap(one: _WordRun, other: _WordRun) -> bool:
    return one.start < other.end and other.start < one.end


def _without_common(words: Sequence[_Word], taken: _WordRun) -> tuple[int, int]:
    """Returns the first and the last word of a run, common words at its ends left out."""
    content = [at for at in range(taken.start, taken.end) if words[at].form not in COMMON]
    return content[0], content[-1]


def _plain(text: str) -> str:
    """Returns a text without case and accents."""
    if text.isascii():
        return text.casefold()
    return without_accents(text).casefold()


def _words(text: str) -> list[_Word]:
    found = []
    for match in _WORD.finditer(POSSESSIVE.sub(lambda ending: " " * len(ending[0]), text)):
        word = match[0]
        named = word[0].isupper() or any(map(str.isdigit, word))
        if form := _plain(word):  # a mark without a letter has none
            found.append(_Word(form, named, match.start(), match.end()))
    return found
