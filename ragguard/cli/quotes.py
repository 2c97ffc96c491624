"""Finds the sentence of some passages that answers a question, by words only: how much of the question it covers, what
other passages state instead, and whether a model's answer is in it.

On 71 questions of CLAPnq that did not choose the rule it finds a sentence that people selected in 0.80 (0.44 by chance,
0.72 by BM25, 0.79 by taking the first one); it was chosen on the other 71 (0.77, there the first one has 0.66). So a
quote is called a quote, and no answer. `python -m studies.quotes FILE` measures it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from ragguard.records import Passage
from ragguard.text.chunks import HEADING, sentences
from ragguard.text.search import Search, content_words, stem, terms
from ragguard.text.statements.abstention import is_abstention
from ragguard.text.statements.kinds import FIGURE, counted_things, kind_asked, subject_of
from ragguard.text.statements.names import names_in, new_names
from ragguard.text.statements.phrases import findable, mentions
from ragguard.text.statements.repetition import repeats_question

NEW, HOLDS, FIRST = 0.5, 0.25, 0.2
"""The weights of the share of those words of a question that the heading lacks, of what is asked for (a number, a date,
a name), and of the first sentence, beside the share of all words of the question; chosen on one half of CLAPnq."""
ENOUGH = 0.5
"""The least share of a question's words, rare ones weigh more, with which a passage is about the question."""
_ALIKE = 0.8
"""The share of the best sentence's worth from which another one fits about equally."""
_SAME_WORDS = 0.5
"""The least share of equal words, numbers and names left out, of two sentences that may state different answers."""
_TURNING = ("from", "after", "by", "for", "before", "to", "under")
"""Words behind which another name turns a fact round."""
_CAPITAL = r"(?:the )?[A-Z]"
_RIVALS = 2
"""The most sentences that are shown beside the best one."""


class Sentence(NamedTuple):
    """A sentence with its passage."""

    text: str
    passage: Passage
    worth: float


class Fit(Enum):
    """How well the best sentence fits its question, by words."""

    GOOD = auto()
    POOR = auto()
    """The passages have too little of the question: they may say it in other words, or not."""
    NONE = auto()
    """No passage has a name of the question, or a word of it."""


@dataclass(frozen=True, slots=True)
class QuoteEvidence:
    """The sentences of some passages that fit a question."""

    question: AskedQuestion
    """The question by which they were chosen: a follow-up, if there was one."""
    best: Sentence | None
    """The sentence that fits best; None if no passage has a word of the question."""
    rivals: Sequence[Sentence]
    """The sentences of other passages that fit about equally and state another number or name."""
    missing: Sequence[str]
    """The question's words that no passage has."""
    elsewhere: Sequence[str]
    """The question's words that other passages have, and that of the best sentence lacks."""
    fit: Fit


def passage_heading(passage: Passage) -> str:
    """Returns the heading of a passage and the name of its file."""
    return f"{passage.metadata.get(HEADING, '')} {passage.id.partition('#')[0]}"


class AskedQuestion:
    """A question by its words."""

    def __init__(self, text: str, search: Search | None = None) -> None:
        self.text = text
        self.words = list(dict.fromkeys(content_words(subject_of(text)))) or content_words(text)
        self.terms = list(dict.fromkeys(map(stem, self.words)))
        self.kind = kind_asked(text)
        self.counted = set(terms(counted_things(text)))
        """The things that are counted: berths of "How many berths …"."""
        self._rarity = search.index.rarity if search is not None else lambda word: 1.0

    def wants(self, sentence: str) -> bool | None:
        """Returns whether a sentence holds a number, a date or a name, if that is asked for; None if nothing is."""
        return self.kind and self.kind.is_in(sentence)

    def reversed_by(self, sentence: str) -> str:
        """Returns the words before a name of the question that a sentence has before another name only: "over from" of
        "Who took over from Ada?" in "Ada took over from Ben"; "" for none."""
        for name in names_in(self.text):
            before = re.search(rf"(\w+ (?:{'|'.join(_TURNING)})) {re.escape(name)}", self.text)
            holds = before and re.search(rf"\b{before[1]} (?={_CAPITAL})", sentence)
            if before and holds and f"{before[1]} {name}" not in sentence and name in sentence:
                return before[1]
        return ""

    def counts(self, text: str) -> set[str]:
        """Returns the numbers of what the question counts: 112 in "112 large berths" and in "berths: 112"."""
        things = self.counted
        return {
            figure[0]
            for figure in FIGURE.finditer(text)
            if things
            & {*terms(" ".join(text[figure.end() :].split()[:3])), *terms(text[: figure.start()])[-1:]}
        }

    def share(self, words: Iterable[str], *, weighed: bool = False) -> float:
        """Returns the share of the question's words that are among some; `weighed`: rare words count for more."""
        weight = {word: self._rarity(word) if weighed else 1.0 for word in self.terms}
        return sum(weight[word] for word in weight.keys() & set(words)) / (sum(weight.values()) or 1.0)

    def open_terms(self, heading: str) -> set[str]:
        """Returns the question's words that a heading lacks."""
        return set(self.terms) - set(terms(heading))

    def open_words(self, sentence: Sentence) -> list[str]:
        """Returns the question's words that the heading of a sentence lacks, if the sentence has none of them either:
        it shares the subject with the question, and says nothing of what is asked. Of a question that counts things, a
        sentence has to name them."""
        words = set(terms(sentence.text))
        if self.counted and not words & self.counted:
            return [word for word in self.words if stem(word) in self.counted]
        left_open = self.open_terms(passage_heading(sentence.passage))
        return [] if left_open & words else [word for word in self.words if stem(word) in left_open]

    def worths(self, texts: Sequence[str], heading: str) -> list[float]:
        """Returns how well each of the sentences under a heading fits."""
        open_terms, found = self.open_terms(heading), list[float]()
        for place, text in enumerate(texts):
            words, wants = (
                set(terms(text)),
                float(wanted) if (wanted := self.wants(text)) is not None else 0.5,
            )
            if wants == 1 and self.counted and not self.counts(text):
                wants = 0.5  # a number, but of something else, or by another word
            new = len(open_terms & words) / max(1, len(open_terms))
            worth = self.share(words) + NEW * new + HOLDS * wants + FIRST / (1 + place)
            found.append(worth)
        return found

    def ranked(self, passage: Passage) -> list[Sentence]:
        """Returns the sentences of a passage with their worth, in their order."""
        texts = sentences(passage)
        worths = self.worths(texts, passage_heading(passage))
        return [Sentence(text, passage, worth) for text, worth in zip(texts, worths, strict=True)]

    def best_part(self, passage: Passage) -> str:
        """Returns the sentence of a passage that fits best."""
        best = self.chosen(self.ranked(passage))
        return passage.text if best is None else best.text

    def chosen(self, ranked: Sequence[Sentence]) -> Sentence | None:
        """Returns the sentence that fits best; of its passage rather one that says something of what is asked, and one
        that has the number, date or name which is asked for."""
        best = max(ranked, key=lambda sentence: sentence.worth, default=None)
        if best is None:
            return None
        beside = [one for one in ranked if one.passage is best.passage and not self.open_words(one)]
        if self.open_words(best):  # of its subject, a neighbour may say more
            best = max(beside, key=lambda sentence: sentence.worth, default=best)
        if self.wants(best.text) is False:
            with_kind = [sentence for sentence in beside if self.wants(sentence.text)]
            best = max(with_kind, key=lambda sentence: sentence.worth, default=best)
        return best

    def evidence(self, passages: Sequence[Passage]) -> QuoteEvidence:
        """Returns the sentences of some passages, the best passage first, that fit this question."""
        held = [(passage, {*terms(passage.text), *terms(passage_heading(passage))}) for passage in passages]
        shares = [self.share(words, weighed=True) for _, words in held]
        ranked = [
            sentence._replace(worth=sentence.worth + share)
            for (passage, _), share in zip(held, shares, strict=True)
            for sentence in self.ranked(passage)
        ]
        best = self.chosen(ranked)
        known = set().union(*(words for _, words in held))
        names = [content_words(name) for name in self._names(passages)]
        around = next((words for passage, words in held if best and passage is best.passage), set())
        fit = Fit.GOOD
        if best is None or any(name and stem(name[-1]) not in known for name in names):
            fit = Fit.NONE
        elif max(shares) < ENOUGH or (names and not self._asked_of(names) & known):
            fit = Fit.POOR if known & set(self.terms) else Fit.NONE
        return QuoteEvidence(
            question=self,
            best=best,
            rivals=[*self._rivals(best, ranked)][:_RIVALS] if best else [],
            missing=[word for word in self.words if stem(word) not in known],
            elsewhere=[word for word in self.words if stem(word) in known - around],
            fit=fit,
        )

    def _asked_of(self, names: Sequence[Sequence[str]]) -> set[str]:
        """Returns what a question asks of its names: "join" of "When did Grete Holm join?"; the names, if nothing."""
        of_names = {stem(word) for name in names for word in name}
        return set(self.terms) - of_names or of_names

    def _names(self, passages: Sequence[Passage]) -> list[str]:
        """Returns the names in the question, those without a capital by the passages, which never write them small."""
        texts = " ".join(passage.text for passage in passages)
        small = [
            word
            for word in self.words
            if word.islower()
            and not re.search(rf"\b{word}\b", texts)
            and re.search(rf"(?<=\w ){word.title()}\b", texts)
        ]
        return [*names_in(self.text), *small]

    def _rivals(self, best: Sentence, ranked: Sequence[Sentence]) -> Iterator[Sentence]:
        stated = [best.text]
        for sentence in sorted(ranked, key=lambda rival: -rival.worth):
            if sentence.passage.id == best.passage.id or sentence.worth < _ALIKE * best.worth:
                continue
            if self.wants(best.text) and not self.wants(sentence.text):
                continue
            if all(_differ(sentence.text, text) for text in stated):
                stated.append(sentence.text)
                yield sentence


def _differ(text: str, other: str) -> bool:
    """Returns whether two sentences say nearly the same with other numbers or names in it."""
    figures = [{*names_in(stated), *FIGURE.findall(stated)} for stated in (text, other)]
    words = [set(terms(text)) - {stem(word) for figure in held for word in content_words(figure)}
             for text, held in zip((text, other), figures, strict=True)]  # fmt: skip
    alike = len(words[0] & words[1]) >= _SAME_WORDS * max(1, min(map(len, words)))
    return alike and bool(figures[0] - figures[1]) and bool(figures[1] - figures[0])


class Grounding(NamedTuple):
    """An answer of a model beside the passages that it read."""

    sentence: Sentence | None
    """The sentence in which the answer stands; None if there is none."""
    why: str = ""
    """The reason for which the answer is not shown as one; "" if it is."""


def ground(
    answer: str, question: AskedQuestion, evidence: QuoteEvidence, passages: Sequence[Passage]
) -> Grounding:
    """Returns the sentence in which all that an answer adds to the question stands, or why it is not shown."""
    if not answer.strip() or is_abstention(answer):
        return Grounding(None, "the model gave no answer")
    names = new_names(answer, question.text)
    strangers = [
        name
        for name, forms in names.items()
        if not any(mentions(passage.text, forms) for passage in passages)
    ]
    if strangers:
        listing = ", ".join(f"“{name}”" for name in strangers)
        return Grounding(None, f"{listing} is in no passage that was retrieved")
    if question.wants(answer) is False:
        return Grounding(None, "they have nothing of the kind that the question asks for")
    if repeats_question(answer, question.text):
        return Grounding(None, "they only repeat the question")
    additions = {*terms(answer)} - {*terms(question.text)}
    ranked = [sentence for passage in passages for sentence in evidence.question.ranked(passage)]
    least = ENOUGH * max((sentence.worth for sentence in ranked), default=0.0)
    holders = [
        sentence
        for sentence in ranked
        if sentence.worth >= least
        and additions <= set(terms(sentence.text))
        and all(mentions(sentence.text, forms) for forms in names.values())
        and question.counts(answer) <= question.counts(sentence.text)
    ]
    if not holders:
        return Grounding(None, "no sentence that fits the question says all of it")
    return Grounding(max(holders, key=lambda sentence: sentence.worth))


class FollowUp(NamedTuple):
    """The way on from the best sentence of a first search."""

    query: str
    """The open words of the question, and the name that the sentence brings."""
    known: Sequence[Passage]
    """The passages of the first search that have both; empty if a second search has to find them."""


def follow_up(
    question: AskedQuestion, evidence: QuoteEvidence, passages: Sequence[Passage], search: Search
) -> FollowUp | None:
    """Returns what the best passage leaves open of a question, of a name that its best sentence brings; None if nothing
    is open, no name is new, or no other text has that name and an open word."""
    if evidence.fit is not Fit.GOOD or evidence.best is None:
        return None
    best = evidence.best
    above = {*terms(best.passage.text), *terms(passage_heading(best.passage))}
    left_open = [word for word in question.words if stem(word) not in above]
    nowhere = not any(stem(word) in search.index for word in left_open)
    for name in names_in(best.text) if left_open else ():
        if not name[0].isalpha() or mentions(question.text, findable([name])):
            continue
        query = " ".join([*left_open, name])
        others = [passage for passage in passages if passage.id != best.passage.id]
        for known, looked_at in ((True, others), (False, search(query, _LOOKED_AT, without=passages))):
            going_on = [
                passage
                for passage in looked_at
                if mentions(passage.text, findable([name]))
                and (nowhere or {*map(stem, left_open)} & set(terms(passage.text)))
            ]
            if going_on:
                return FollowUp(query, going_on if known else ())
    return None


_LOOKED_AT = 10
"""The passages of which one has to go on from the first search."""
