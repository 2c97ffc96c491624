"""Collects what is known of a scored run and its hops for the explanation in words: texts, utilities, gains of belief;
and finds answers and names in passages, word for word and without a model.

This file says nothing in words.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ragguard.facts.steps import numbered, view_step
from ragguard.records import Run, Score
from ragguard.text.language import normalise
from ragguard.text.words import DASHES, POSSESSIVE, figure_words

LONGEST = 8
"""The most words of a text that is looked for: a longer one is put otherwise in a passage."""
_NO_CONTENT = frozenset(("yes", "no", "true", "false", "none"))
"""Answers that stand in a text by chance."""
_MARKS = ".,;:!?\"'“”‘’()[]"
_ENDS = ",.;:!?"
"""The marks behind which no name goes on."""
_BEGINS_FIGURE = re.compile(rf"[{DASHES}+±~≈]?[$€£¥]?\d")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Phrase(NamedTuple):
    """A short text that is looked for in passages."""

    words: str
    """The text in the form of `figure_words`, with spaces around it unless its script may not set words apart."""
    rarest: str
    """Characters that a passage with the phrase has, punctuation left out: digits, or else the longest word."""


def findable(texts: Iterable[str]) -> list[Phrase]:
    """Returns those of the texts whose words would not stand in a passage by chance, nor be put otherwise there."""
    found: list[Phrase] = []
    for text in texts:
        plain = normalise(text)
        if not 1 <= len(plain.split()) <= LONGEST or plain in _NO_CONTENT or not any(map(str.isalnum, plain)):
            continue
        words = figure_words(text)
        bare = normalise(POSSESSIVE.sub("", text))
        # Letters of a script without capitals, such as Han or Thai.
        spaceless = any(unicodedata.category(char) == "Lo" for char in words)
        rarest = max(re.findall(r"\d+", bare) or bare.split(), key=len)
        found.append(Phrase(words if spaceless else f" {words} ", rarest))
    return found


def mentions(text: str, phrases: Sequence[Phrase]) -> bool:
    """Returns whether one of the phrases stands in a text word for word."""
    if text.isascii():  # few texts have the rarest part of a phrase, and finding the words of a text is slow
        plain = text.casefold().translate(_NO_PUNCTUATION)
        phrases = [phrase for phrase in phrases if phrase.rarest in plain]
    if not phrases:
        return False
    words = f" {figure_words(text)} "
    return any(phrase.words in words for phrase in phrases)


def names_in(text: str) -> list[str]:
    """Returns the names in a text: runs of words that begin with capitals, and figures; without a sentence's first word
    where that stands alone."""
    names: list[str] = []
    name: list[str] = []
    first = begins = True
    for word in [*text.replace(" %", "%").split(), ""]:
        bare = word.strip(_MARKS).removesuffix("'s").removesuffix("’s")
        is_name = bare[:1].isupper() or _BEGINS_FIGURE.match(bare) is not None
        if is_name:
            begins = begins if name else first
            name.append(bare)
        if name and (not is_name or word[-1] in _ENDS):
            if len(name) > 1 or not begins or _BEGINS_FIGURE.match(name[0]):
                names.append(" ".join(name))
            name = []
        first = word[-1:] in tuple(".!?")
    return names


CLEAR = 0.2
"""The least size of a utility that is called help or harm."""
ANSWERS = 3
"""The least rating, from 0 to 5, with which a passage is said to answer a sub-question."""
READ = frozenset(("utility", "delta_seper", "delta_seper_alone", "answer_correct"))
"""The scores that explanations read."""
_ERRORS = 2
"""How many standard errors a difference must exceed to count as one."""


@dataclass(frozen=True, slots=True)
class BeliefGain:
    """A difference of belief with its standard error; None where the error is not known."""

    value: float
    stderr: float | None

    @property
    def significant(self) -> bool:
        """True where the difference exceeds two standard errors and does not round to zero."""
        return abs(self.value) >= 0.005 and is_clear(self.value, self.stderr)

    def __str__(self) -> str:
        error = "" if self.stderr is None else f" ± {self.stderr:.2f}"
        return f"{self.value:+z.2f}{error}"


def is_clear(value: float, stderr: float | None) -> bool:
    """Returns whether a value is at least two standard errors away from zero."""
    return abs(value) >= _ERRORS * (stderr or 0.0)


@dataclass(slots=True)
class HopFacts:
    """The passages of one hop by rank, and its gains of belief."""

    number: int
    turn: int
    query: str
    texts: Sequence[str]
    """The passages in the order of their ranks, those that the model did not get included."""
    read: frozenset[int]
    """The ranks, from 1, of the passages that the model got."""
    dropped: frozenset[int] = frozenset()
    """The ranks of the passages that a guard dropped."""
    utilities: dict[int, float] = field(default_factory=dict)
    """The utilities by rank; 0 where one is within two standard errors of zero."""
    gain: BeliefGain | None = None
    """The change of belief by this hop after the earlier ones."""
    alone: BeliefGain | None = None
    """The change of belief by this hop without the earlier ones."""

    @property
    def answers_its_query(self) -> bool | None:
        """True where a passage that was read was judged to answer the query; None where not all were judged."""
        if any(self.utilities.get(rank, 0.0) > CLEAR for rank in self.read):
            return True
        return False if self.read <= self.utilities.keys() else None


@dataclass(slots=True)
class RunFacts:
    """The question, answer and hops of a run, and what was judged of them."""

    question: str
    answer: str
    references: Sequence[str]
    hops: Sequence[HopFacts]
    verdict: str = ""
    """The label of `answer_correct`; empty where the answer was not judged."""
    support: bool = False
    """True where beliefs are in the run's own answer, for want of references."""


def facts_of(run: Run, scores: Iterable[Score]) -> RunFacts:
    """Returns what is known of a run by its scores."""
    hops: dict[str, HopFacts] = {}
    turns = {step.id: turn for turn, step in numbered(run.steps)}
    for number, step in enumerate(run.steps, 1):
        seen = view_step(step, 0)
        dropped = step.decision.dropped if step.decision else ()
        hops[step.id] = HopFacts(
            number,
            turns[step.id],
            step.query or run.question,
            [passage.text for passage in seen.all],
            read=frozenset(at + 1 for at in seen.got),
            dropped=frozenset(drop.position for drop in dropped),
        )
    facts = RunFacts(run.question, run.answer or "", run.references or (), list(hops.values()))
    shown = (score for score in scores if score.stage == "passages" and score.name in READ)
    return with_scores(facts, hops, shown)


def with_scores(facts: RunFacts, hops: Mapping[str, HopFacts], scores: Iterable[Score]) -> RunFacts:
    """Returns the facts with what scores say of the run, and of its hops by the ids of their steps."""
    latest: dict[tuple[str, str], Score] = {}
    for one in scores:
        if one.position is None:
            key = one.step_id, one.name
            known = latest.get(key)
            # What rests on gold stays where what rests on the answer comes later.
            if known is None or known.reference_source != "gold" or one.reference_source == "gold":
                latest[key] = one
        elif one.name == "utility" and (hop := hops.get(one.step_id)):
            hop.utilities[one.position] = one.value if is_clear(one.value, one.stderr) else 0.0
    for step, hop in hops.items():
        hop.gain, hop.alone = (
            BeliefGain(found.value, found.stderr) if (found := latest.get((step, name))) else None
            for name in ("delta_seper", "delta_seper_alone")
        )
    beliefs = [one for (_, name), one in latest.items() if name == "delta_seper"]
    facts.support = any(one.reference_source == "answer" for one in beliefs)
    verdict = latest.get(("", "answer_correct"))
    facts.verdict = "" if verdict is None else verdict.label
    return facts
