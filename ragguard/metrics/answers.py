"""How good an answer is beside reference texts, by words alone; and whether it is an answer at all."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ragguard.errors import InvalidInput
from ragguard.metrics import arrays
from ragguard.metrics.registry import Metric, declare

SQUAD = "Rajpurkar et al. 2016 (SQuAD)"

_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class Language:
    """What comparing answers must know of a language. English is `ENGLISH`; another is declared by its user."""

    articles: tuple[str, ...] = ()
    """Words that are dropped before answers are compared."""
    abstentions: tuple[str, ...] = ()
    """How an answer begins that is none."""
    blanks: tuple[str, ...] = ()
    """Words that are no answer when they stand alone."""
    lead_ins: tuple[str, ...] = ()
    """What may stand before an abstention, such as an apology."""
    turns: tuple[str, ...] = ()
    """What shows that an answer follows the abstention after all, such as "but"."""


ENGLISH = Language(
    articles=("a", "an", "the"),
    abstentions=(
        "no response", "noresponse", "no answer", "none of the passages",
        "i dont know", "i do not know", "dont know", "not sure", "im not sure", "i am not sure",
        "i cannot", "i cant", "i can not", "i could not", "i couldnt", "cannot be determined",
        "cannot answer", "cannot determine", "unable to", "i am unable", "im unable", "i was unable",
        "it is not possible to", "it is impossible to", "it is unclear", "it is unknown", "it is not known",
        "i have no information", "i dont have", "i do not have", "there is no information",
        "there is not enough", "there isnt enough", "not enough information", "insufficient information",
        "no information", "no relevant information",
        "passage does not", "passages do not", "context does not", "documents do not", "document does not",
        "text does not", "provided passage does not", "provided passages do not", "provided context does not",
        "provided documents do not", "provided text does not", "given context does not",
        "given passages do not", "question cannot be answered", "answer is not", "answer cannot be",
    ),
    blanks=("unknown", "unanswerable", "not known", "not available", "not applicable", "not mentioned"),
    lead_ins=(
        "sorry", "i am sorry", "im sorry", "i apologize", "i apologise", "unfortunately", "answer is",
        "based on provided context", "based on given context", "based on context",
        "based on provided passages", "based on given passages", "based on passages",
        "based on provided information", "based on given information",
    ),
    turns=("but", "however", "although", "though"),
)  # fmt: skip


def normalise(text: str, language: Language = ENGLISH) -> str:
    """The text as answers are compared: Unicode NFKC, case, punctuation, articles and white space evened out.

    Text that holds nothing else keeps its articles ("A" is an answer, too), then its punctuation.
    """
    if not isinstance(text, str):
        raise InvalidInput("text", text, "a string")
    if not isinstance(language, Language):
        raise InvalidInput("language", language, "a Language, such as ENGLISH")
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    if plain.isascii():
        words = plain.translate(_ASCII_PUNCTUATION).split()
    else:
        words = "".join(char for char in plain if not _punctuation(char)).split()
    kept = [word for word in words if word not in language.articles]
    return " ".join(kept or words or plain.split())


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


def _punctuation(char: str) -> bool:
    return char in string.punctuation or unicodedata.category(char).startswith("P")


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
