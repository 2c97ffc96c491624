"""How good an answer is beside reference texts, by words alone; and whether it is an answer at all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from ragguard.answer_text import ENGLISH, Language, normalise
from ragguard.errors import InvalidInput
from ragguard.metrics import arrays
from ragguard.metrics.registry import Metric, declare

SQUAD = "Rajpurkar et al. 2016 (SQuAD)"


def exact_match(answer: str, references: str | Sequence[str], language: Language = ENGLISH) -> float:
    """1 if the answer equals a reference after `normalise`, else 0; nan without references."""
    return _best(answer, references, language, lambda ours, theirs: float(ours == theirs))


declare(
    Metric(
        name="exact_match",
        title="Exact match",
        description="Whether the answer equals a reference but for case, articles and punctuation.",
        range=(0, 1),
        direction="higher",
        needs="the answer, references",
        source=SQUAD,
        function=exact_match,
    )
)
declare(
    Metric(
        name="answer_correct",
        title="Correct answer",
        description="1 correct, 0.5 correct but unsupported, 0 wrong or abstained; the label says which.",
        range=(0, 1),
        direction="higher",
        needs="the answer, references, entailment",
        source="Trappolini et al. 2025",
        levels=("run",),
    )
)


def token_f1(answer: str, references: str | Sequence[str], language: Language = ENGLISH) -> float:
    """F1 of the words the answer shares with the reference that it shares most with; nan without references."""
    return _best(answer, references, language, lambda ours, theirs: _f1(_shared(ours, theirs), ours, theirs))


declare(
    Metric(
        name="token_f1",
        title="Token F1",
        description="F1 of the words that the answer shares with the nearest reference.",
        range=(0, 1),
        direction="higher",
        needs="the answer, references",
        source=SQUAD,
        function=token_f1,
    )
)


def rouge_l(answer: str, references: str | Sequence[str], language: Language = ENGLISH) -> float:
    """F1 of the longest common subsequence of words, with the best reference; nan without references."""
    return _best(answer, references, language, lambda ours, theirs: _f1(_common(ours, theirs), ours, theirs))


declare(
    Metric(
        name="rouge_l",
        title="ROUGE-L",
        description="F1 of the longest common subsequence of words with the nearest reference.",
        range=(0, 1),
        direction="higher",
        needs="the answer, references",
        source="Lin 2004",
        function=rouge_l,
    )
)
declare(
    Metric(
        name="response_grade",
        title="Response grade",
        description="How good the answer is beside an ideal one, from 1 to 5.",
        range=(1, 5),
        direction="higher",
        needs="a judge, the answer, an ideal answer",
        source="Schwartz et al.",
        levels=("run",),
    )
)


def is_abstention(answer: str, language: Language = ENGLISH) -> bool:
    """Whether the answer says that it gives none. One that goes on to answer ("…, but") does not."""
    if not isinstance(answer, str):
        raise InvalidInput("answer", answer, "a string")
    words = normalise(answer.replace("-", " "), language)
    if not any(char.isalnum() for char in words):
        return True
    found = _abstains(language).match(words)
    if not found or not found[0]:
        return False
    return not set(language.turns).intersection(words[found.end() :].split())


@lru_cache(maxsize=16)
def _abstains(language: Language) -> re.Pattern[str]:
    """How an answer that is none begins, once normalised."""
    lead, says, blank = (
        "|".join(_spelt(phrases, language))
        for phrases in (language.lead_ins, language.abstentions, language.blanks)
    )
    return re.compile(rf"(?:(?:{lead}) )*(?:(?:{says})(?= |$)|(?:{blank})$)")


def _spelt(phrases: Sequence[str], language: Language) -> list[str]:
    return [re.escape(normalise(phrase, language)) for phrase in sorted(phrases, key=len, reverse=True)]


def _best(
    answer: str,
    references: str | Sequence[str],
    language: Language,
    compare: Callable[[list[str], list[str]], float],
) -> float:
    texts = [references] if isinstance(references, str) else arrays.items("references", references)
    for argument, text in [("answer", answer), *((f"references[{i}]", text) for i, text in enumerate(texts))]:
        if not isinstance(text, str):
            raise InvalidInput(argument, text, "a string")
    ours = normalise(answer, language).split()
    return max((compare(ours, normalise(text, language).split()) for text in texts), default=float("nan"))


def _f1(common: int, ours: list[str], theirs: list[str]) -> float:
    if not ours and not theirs:
        return 1.0
    return 2 * common / (len(ours) + len(theirs))


def _shared(ours: list[str], theirs: list[str]) -> int:
    return (Counter(ours) & Counter(theirs)).total()


def _common(ours: list[str], theirs: list[str]) -> int:
    """The length of the longest common subsequence, a row of the table at a time."""
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys(theirs))}
    target = np.array([vocabulary[word] for word in theirs], dtype=np.intp)
    best = np.zeros(len(theirs) + 1, dtype=np.intp)
    for word in ours:
        best[1:] = np.maximum(best[1:], best[:-1] + (target == vocabulary.get(word, -1)))
        np.maximum.accumulate(best, out=best)
    return int(best[-1])
