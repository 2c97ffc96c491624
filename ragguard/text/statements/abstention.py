"""Recognises answers that say that they give none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache

from ragguard.errors import InvalidInput
from ragguard.text.language import ABSTENTION, ENGLISH, Language, normalise


def is_abstention(answer: str, language: Language = ENGLISH) -> bool:
    """Returns whether an answer says that it gives none, by how it begins or, if it is one clause, by how it ends.

    An answer that goes on to say something ("…, but it was Oslo", "Not sure, maybe Oslo") is no abstention.
    """
    if not isinstance(answer, str):
        raise InvalidInput("answer", answer, "a string")
    words = normalise(answer.replace("-", " "), language).split()
    if not any(char.isalnum() for word in words for char in word) or _NOT_APPLICABLE.fullmatch(
        answer.strip()
    ):
        return True
    known = _phrases(language)
    end = known.abstains(words)
    if end is not None and end < len(words) and _is_title(answer):
        return False
    if end is not None:
        turns = ((at, known.at("turns", words, at)) for at in range(end, len(words)))
        turned = next((at + length for at, length in turns if length), None)
        return turned is None or is_abstention(" ".join(words[turned:]), language)
    clauses = [normalise(clause, language).split() for clause in _CLAUSE.split(answer) if clause.strip()]
    while len(clauses) > 1 and known.at("lead_ins", clauses[0], 0) == len(clauses[0]):
        clauses.pop(0)
    return len(clauses) == 1 and known.ends(clauses[0])


def begins_abstaining(answer: str, language: Language = ENGLISH) -> bool:
    """Returns whether the first words of an answer abstain, whatever follows: "I don't know who won, but …".

    Lead-ins do not count: "As an AI language model, I do not have …" often stands before a full answer.
    """
    words = normalise(answer.replace("-", " "), language).split()
    return _phrases(language).at("abstentions", words, 0) > 0 and not _is_title(answer)


_NOT_APPLICABLE = re.compile(r"n ?/ ?a\.?|n\.a\.", re.IGNORECASE)
"""A mark in a table's cell, which is no word: "Na" is sodium."""


def _is_title(answer: str) -> bool:
    """Returns whether a text is written like the title of a work: "I Don't Know How to Love Him"."""
    first, *others = answer.split()
    if not (answer[-1].isalnum() and first[0].isupper() and not answer.isupper()):
        return False
    capitals = [word for word in others if word[0].isupper() and re.split("['’]", word)[0] != "I"]
    return len(capitals) > 1 and all(len(word) <= _SMALL_WORD for word in others if not word[0].isupper())


_SMALL_WORD = 3
"""The most letters of a word that stays without a capital in a title, such as "to" or "the"."""
_CLAUSE = re.compile(r"[.,;:!?()\n—–]+")
_LABELS = (ABSTENTION, ABSTENTION.replace("-", " "))
"""How ragguard's own prompts tell a model to abstain, whatever the language."""
_EMPTY = "Empty Response"
"""LlamaIndex's answer if nothing was retrieved, whatever the language."""
_BETWEEN = 2
"""The most words between an ending and the name of a source, as in "not mentioned in the provided passages"."""


class _Phrases:
    """The phrases of a language by which abstentions are recognised, as normalised words."""

    def __init__(self, language: Language) -> None:
        lists = asdict(language) | {
            "abstentions": (*language.abstentions, *_LABELS), "blanks": (*language.blanks, _EMPTY),
        }  # fmt: skip
        self._known = {
            kind: {tuple(normalise(phrase, language).split()) for phrase in phrases}
            for kind, phrases in lists.items()
        }
        self._longest = {kind: max(map(len, known), default=0) for kind, known in self._known.items()}

    def at(self, kind: str, words: Sequence[str], start: int) -> int:
        """Returns how many words the longest phrase has that begins at a position; 0 where no phrase does."""
        known, most = self._known[kind], min(self._longest[kind], len(words) - start)
        return next((n for n in range(most, 0, -1) if tuple(words[start : start + n]) in known), 0)

    def abstains(self, words: Sequence[str]) -> int | None:
        """Returns the position behind the abstention with which a text begins, after lead-ins; None without one."""
        start = 0
        while start < len(words):
            if length := self.at("abstentions", words, start):
                return start + length
            if start + self.at("blanks", words, start) == len(words):
                return len(words)
            if not (length := self.at("lead_ins", words, start)):
                return None
            start += length
        return None

    def ends(self, words: Sequence[str]) -> bool:
        """Returns whether a text ends in a phrase of abstention, with or without the name of a source behind it."""
        first = max(0, len(words) - self._longest["endings"] - _BETWEEN - 1)
        for at in range(first, len(words)):
            if length := self.at("endings", words, at):
                tail = words[at + length :]
                if not tail or (len(tail) <= _BETWEEN + 1 and self.at("sources", tail, len(tail) - 1)):
                    return True
        return False


_phrases = lru_cache(maxsize=16)(_Phrases)
