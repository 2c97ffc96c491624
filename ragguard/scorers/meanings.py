"""Finds which sampled answers mean the same, and which mean a reference, with as few comparisons as possible.

Answers of the same words are never compared. Each pair is compared once in a run. Within a context an answer is
compared with the first answer of each meaning only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

from ragguard.engines.entailer import Pair, same
from ragguard.errors import RagguardError
from ragguard.metrics.answers import is_abstention
from ragguard.scorers.probes import check_mass
from ragguard.scorers.question import Ask, EntailAnswer, EntailQuestion, answered
from ragguard.text.language import ENGLISH, Language, meaning_key

Equivalence = Literal["threshold", "strict"]
Match = Literal["loose", "bi"]
_ENTAILS, _NEUTRAL, _CONTRADICTS = range(3)
_NOTHING = ""
_SAME = EntailAnswer((1.0, 0.0, 0.0))


@dataclass(slots=True)
class Meanings:
    """The meanings of answers to one question, as far as they were compared."""

    question: str
    ask: Ask
    language: Language = ENGLISH
    equivalence: Equivalence = "threshold"
    match: Match = "loose"
    tau: float = 0.5
    _known: dict[Pair, EntailAnswer | RagguardError] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)
    _words: dict[str, str] = field(default_factory=dict)

    def words(self, answer: str) -> str:
        """Returns the text by which an answer is compared: the first answer seen of the same words; "" for an
        abstention."""
        if answer not in self._texts:
            nothing = not answer.strip() or is_abstention(answer, self.language)
            key = meaning_key(answer, self.language)
            self._texts[answer] = _NOTHING if nothing else self._words.setdefault(key, answer.strip())
        return self._texts[answer]

    async def learn(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Asks whether the second of two `words` follows from the first, where that is not known yet."""
        wanted: dict[Pair, None] = {}
        for one, other in pairs:
            pair = Pair(self.question, one, other)
            if one == other or _NOTHING in (one, other) or pair in self._known:
                continue
            if same(pair):
                self._known[pair] = _SAME
            else:
                wanted[pair] = None
        answers = await self.ask([EntailQuestion(pair) for pair in wanted])
        self._known.update(zip(wanted, answers, strict=True))

    def entailment(self, premise: str, hypothesis: str) -> tuple[float, float, float]:
        """Returns (entailment, neutral, contradiction) of two `words`; raises the error for which it is not known."""
        if premise == hypothesis:
            return 1.0, 0.0, 0.0
        if _NOTHING in (premise, hypothesis):
            return 0.0, 1.0, 0.0
        pair = Pair(self.question, premise, hypothesis)
        return relation(answered(self._known[pair]))

    def follows(self, one: str, other: str) -> bool:
        """Returns whether the second of two `words` follows from the first; every answer follows from itself."""
        if one == other:
            return True
        p = self.entailment(one, other)
        return _verdict(p) == _ENTAILS if self.equivalence == "strict" else p[_ENTAILS] >= self.tau

    def equivalent(self, one: str, other: str) -> bool:
        """Returns whether two `words` follow from each other. Where one does not follow, the other direction need not
        be known."""
        return self.follows(one, other) and self.follows(other, one)

    def matches(self, words: str, reference: str) -> bool:
        """Returns whether a meaning, given by its first answer, is the meaning of the reference."""
        if self.match == "bi":
            return self.equivalent(words, reference)
        verdicts = _verdict(self.entailment(words, reference)), _verdict(self.entailment(reference, words))
        return _CONTRADICTS not in verdicts and verdicts != (_NEUTRAL, _NEUTRAL)

    async def cluster(
        self, contexts: Sequence[Sequence[str]], also: Iterable[tuple[str, str]] = ()
    ) -> list[list[int] | RagguardError]:
        """Returns the number of its meaning for each answer (`words`) of each context, by greedy first match.

        All contexts are compared in the same waves, one first answer of a meaning at a time. `also` are further pairs
        that are compared in the first wave.
        """
        waiting: list[list[str]] = [list(dict.fromkeys(answers)) for answers in contexts]
        meaning: list[dict[str, int]] = [{} for _ in contexts]
        failed: dict[int, RagguardError] = {}
        number = 0
        further = [*also]
        while any(waiting):
            firsts = [(answers[0], other) for answers in waiting for other in answers[1:]]
            await self._learn_both([*further, *firsts])
            further = []
            for index, answers in enumerate(waiting):
                try:
                    joined = [words for words in answers if self.equivalent(answers[0], words)]
                except RagguardError as error:
                    failed[index] = error
                    joined = answers
                meaning[index].update(dict.fromkeys(joined, number))
                waiting[index] = [words for words in answers if words not in meaning[index]]
            number += 1
        return [
            failed.get(index) or [meaning[index][words] for words in answers]
            for index, answers in enumerate(contexts)
        ]

    async def compare_across(self, contexts: Iterable[Mapping[str, int]]) -> None:
        """Compares the answers (`words`) of each context with those of its other meanings, given the number of each
        answer's meaning, as far as `cluster` did not. Which meanings there are may depend on which answer came first.
        """
        pairs = [
            (one, other)
            for meaning in contexts
            for one, other in combinations(meaning, 2)
            if meaning[one] != meaning[other]
        ]
        await self._learn_both(pairs)

    async def _learn_both(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Asks whether the second of two `words` follows from the first; where it does, also the other way round."""
        await self.learn(pairs)
        await self.learn((other, one) for one, other in pairs if self._may_follow(one, other))

    def may_be_equivalent(self, one: str, other: str) -> bool:
        """Returns whether two `words` follow from each other; False where that is not known."""
        return self._may_follow(one, other) and self._may_follow(other, one)

    def _may_follow(self, one: str, other: str) -> bool:
        try:
            return self.follows(one, other)
        except (RagguardError, KeyError):
            return False

    def cut(self, words: Iterable[str]) -> int:
        """Returns how many tokens were cut from pairs with these `words` to make them fit."""
        wanted = set(words)
        return sum(
            answer.truncated
            for pair, answer in self._known.items()
            if isinstance(answer, EntailAnswer) and wanted & {pair.premise, pair.hypothesis}
        )


def relation(answer: EntailAnswer) -> tuple[float, float, float]:
    """Returns (entailment, neutral, contradiction); raises LowLabelMass where a model puts little on these labels."""
    who = "the model that compares answers is asked for its relations and"
    check_mass(answer.mass, who, "give RagGuard an `entailer`")
    return answer.p


def _verdict(p: tuple[float, float, float]) -> int:
    return max(range(3), key=p.__getitem__)
