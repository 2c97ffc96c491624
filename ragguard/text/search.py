"""Searches passages by BM25, without an index on the disk, by words in one form: `leave`, `leaves` and `leaving` are
one."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

import numpy as np

from ragguard.records import Passage
from ragguard.text import lexicon
from ragguard.text.language import COMMON

_NO_CONTENT = COMMON | lexicon.words("function_words", "characters")
"""The most common words of English, and the characters of Chinese that say nothing about a text's subject."""
_IDEOGRAPHS = "\u3040-\u30ff\u4e00-\u9fff"
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|\d+(?:[.,:]\d+)+|[^\W_{_IDEOGRAPHS}]+")
_ENDINGS = "ations ation ments ment lying lies lied ings ing ions ion ies ied ers ed er es ly s e y".split()
_VERBS = (
    "begin began begun, break broke broken, bring brought, build built, buy bought, choose chose chosen, "
    "drive drove driven, eat ate eaten, get got, give gave given, go went gone, hold held, keep kept, know knew known, "
    "lead led, lose lost, make made, mean meant, meet met, pay paid, run ran, say said, sell sold, send sent, "
    "speak spoke spoken, spend spent, take took taken, teach taught, tell told, think thought, win won, write wrote "
    "written"
)
_IRREGULAR = {form: verb for verb, *forms in map(str.split, _VERBS.split(", ")) for form in forms}


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Returns a word without case and ending, irregular verbs in their first form."""
    word = word.lower()
    word = _IRREGULAR.get(word, word)
    ending = next((end for end in _ENDINGS if word.endswith(end) and len(word) - len(end) >= 3), "")
    return word if word.isdigit() else word.removesuffix(ending)


def content_words(text: str) -> list[str]:
    """Returns the words of a text in their order, without the most common ones of English and Chinese."""
    return [word for word in _WORD.findall(text) if word.lower() not in _NO_CONTENT]


def terms(text: str) -> list[str]:
    """Returns the words by which a text is found: `content_words` by their stems."""
    return list(map(stem, content_words(text)))


class Index:
    """BM25 over texts, given as their words, with the usual k1 = 1.2 and b = 0.75."""

    def __init__(self, texts: Iterable[Sequence[str]]) -> None:
        counts = [Counter(words) for words in texts]
        self.size = len(counts)
        lengths = np.array([sum(count.values()) for count in counts], dtype=np.float64)
        spread = 1.2 * (0.25 + 0.75 * lengths / (lengths.sum() / max(1, self.size) or 1.0))
        found: dict[str, list[tuple[int, int]]] = {}
        for number, count in enumerate(counts):
            for word, times in count.items():
                found.setdefault(word, []).append((number, times))
        self._places = {word: np.array(places).T for word, places in found.items()}
        self._weights = {
            word: self.rarity(word) * times * 2.2 / (times + spread[numbers])
            for word, (numbers, times) in self._places.items()
        }

    def rarity(self, word: str) -> float:
        """Returns the inverse document frequency of a word."""
        among = self._places[word].shape[1] if word in self._places else 0
        return math.log(1 + (self.size - among + 0.5) / (among + 0.5))

    def __contains__(self, word: str) -> bool:
        """True if a text has the word."""
        return word in self._places

    def best(self, words: Iterable[str]) -> Iterator[tuple[int, float]]:
        """Returns the numbers and scores of the texts that hold one of the words, the best first; of equal ones the
        lower number first."""
        scores = np.zeros(self.size)
        for word in words:
            if word in self._places:
                scores[self._places[word][0]] += self._weights[word]
        order = np.argsort(-scores, kind="stable")
        return ((int(number), float(scores[number])) for number in order if scores[number] > 0)


class Search:
    """Searches passages by their words and the words of their files' names."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = passages
        self.index = Index(
            [*terms(passage.text), *set(terms(passage.id.partition("#")[0]))] for passage in passages
        )

    def __call__(self, query: str, most: int, without: Collection[Passage] = ()) -> list[Passage]:
        """Returns the best passages that hold one of the query's words, the best first."""
        known = {passage.id for passage in without}
        best = (self._passages[number] for number, _ in self.index.best(dict.fromkeys(terms(query))))
        return list(islice((passage for passage in best if passage.id not in known), most))
