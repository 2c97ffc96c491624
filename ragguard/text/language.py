"""Normalises the texts of answers for comparison, with words and patterns of a language."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from ragguard.errors import InvalidInput
from ragguard.text import lexicon
from ragguard.text.letters import compatible, folded

ABSTENTION = "NO-RESPONSE"
"""The label that ragguard's own prompts tell a model to say where it has no answer; an abstention in every language."""
_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ONE_FORM = str.maketrans(
    {**dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
     **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"), **dict.fromkeys("\u201c\u201d\u201e\u201f", '"')}
)  # fmt: skip
"""Dashes and quotation marks that differ by typography alone."""
COMMON = lexicon.words("function_words", "common", "english")
"""The most common words of English, which say nothing about a text's subject."""
_CHOICE = re.compile(r"\{([^}]*)\}")
_QUOTED = re.compile(r"""(?<!\S)(["'])(\S|\S.{0,300}?\S)\1(?=[.,;:!?]?(?:\s|$))""", re.DOTALL)
_OPENING = "([{¿¡«"
_CLOSING = ".,;:!?…)]}»。、؟،؛۔।॥"
_CLOSING_NUMBER = ".,;:?"


@dataclass(frozen=True, slots=True)
class Language:
    """The words and patterns by which answers are compared; a user declares languages other than `ENGLISH`."""

    articles: tuple[str, ...] = ()
    """Words that are dropped before answers are compared."""
    abstentions: tuple[str, ...] = ()
    """Phrases with which an abstention begins, which is no answer. NO-RESPONSE, which the prompts ask for, is one in
    every language."""
    blanks: tuple[str, ...] = ()
    """Words that are no answer when they stand alone."""
    lead_ins: tuple[str, ...] = ()
    """Phrases that may stand before an abstention, such as an apology."""
    turns: tuple[str, ...] = ()
    """Words that show that an answer follows the abstention after all, such as "but" or "maybe"."""
    endings: tuple[str, ...] = ()
    """Phrases with which an abstention of one clause ends, such as "is not mentioned"."""
    sources: tuple[str, ...] = ()
    """Words that may follow such an ending: names of the sources, such as "passages"."""


def _read(name: str) -> Language:
    """Returns a language with the abstentions of the lexicon, whose phrases stand in patterns."""
    lists = lexicon.languages("abstentions")[name]
    expanded = {
        field: tuple(text for phrase in phrases for text in _expanded(phrase, lists["lists"]))
        for field, phrases in lists.items()
        if field != "lists"
    }
    return Language(**expanded)


def _expanded(phrase: str, named: Mapping[str, list[str]]) -> Iterator[str]:
    """Yields the texts that a pattern stands for: `{a|b}` for a and b, `{NAME}` for each text of a named list."""
    parts = _CHOICE.split(phrase)
    choices = [
        [text for option in part.split("|") for text in named.get(option, [option])] if at % 2 else [part]
        for at, part in enumerate(parts)
    ]
    return map("".join, product(*choices))


ENGLISH = _read("english")


def normalise(text: str, language: Language = ENGLISH) -> str:
    """Returns a text in the form in which answers are compared: Unicode NFKC, case, punctuation, articles and white
    space evened out.

    Text that holds nothing else keeps its articles ("A" is an answer, too), then its punctuation.
    """
    _check(text, language)
    plain = folded(text)
    if plain.isascii():
        words = plain.translate(_ASCII_PUNCTUATION).split()
    else:
        spoken = "".join(char for char in plain if not _punctuation(char))
        words = compatible(spoken).split()  # an accent may have come next to its letter
    kept = [word for word in words if word not in language.articles]
    return " ".join(kept or words or plain.split())


def meaning_key(text: str, language: Language = ENGLISH) -> str:
    """Returns a key by which answers mean the same without doubt: answers of equal keys need no comparison by a model.

    The key is stricter than `normalise`: of punctuation it drops only what ends or encloses a word and what separates
    sentences. Signs, symbols, and what stands inside a word or a number are kept, so that "1.5" is not "15", "-5" not
    "5", and "C++" not "C". Answers of different keys may still mean the same; that is for an entailer to say.
    """
    _check(text, language)
    marked = text if text.isascii() else "".join(f"^{char}" if _raised(char) else char for char in text)
    plain = folded(marked).translate(_ONE_FORM)
    words = _QUOTED.sub(r"\2", plain).split()
    if any(char.isdigit() for char in plain):
        bare = [
            _bare_number(word) if any(map(str.isdigit, word)) else _bare_word(word) or word for word in words
        ]
    else:
        bare = [_bare_word(word) for word in words if word != "-"]
    found = [word for word in bare if word]
    # An article says nothing before a word; as the last word it is a name, as in "vitamin A".
    kept = [word for word in found[:-1] if word not in language.articles] + found[-1:]
    return " ".join(kept or plain.split())


def _bare_word(word: str) -> str:
    return word.lstrip(_OPENING).rstrip(_CLOSING)


def _bare_number(word: str) -> str:
    """Returns a word with digits without the mark that ends a clause; brackets stay, as "(5)" may be a loss."""
    bare = word.lstrip("¿¡")
    return bare[:-1] if bare[-1:] and bare[-1] in _CLOSING_NUMBER else bare


def _raised(char: str) -> bool:
    """Returns whether NFKC makes a plain digit of a character that is none, as of the exponent of 10⁶."""
    return not char.isascii() and not char.isdecimal() and any(map(str.isdigit, compatible(char)))


def _check(text: object, language: object) -> None:
    if not isinstance(text, str):
        raise InvalidInput("text", text, "a string")
    if not isinstance(language, Language):
        raise InvalidInput("language", language, "a Language, such as ENGLISH")


def _punctuation(char: str) -> bool:
    return char in string.punctuation or unicodedata.category(char).startswith("P")


_ENOUGH_WORDS = 20
"""The fewest different words by which English is told from other languages."""
_ENGLISH_SHARE, _HARDLY_ENGLISH = 0.15, 0.04
"""The least share of `COMMON` among the words of an English text, about 0.4 is usual; and the share under which a text
is not English. Between them, as in tables and lists, the common words of other languages decide."""
_FOREIGN = lexicon.words("function_words", "common") - COMMON
_READ_CHARACTERS = 4000
_LOWER_WORD = re.compile(r"\b[^\W\d_A-Z]+\b")


def is_english(texts: Iterable[str]) -> bool:
    """Returns False for texts that are clearly not English: most letters are of another script, or few of the words are
    common ones of English. True where they are too short to tell."""
    read, left = list[str](), _READ_CHARACTERS
    for text in texts:
        if left <= 0:
            break
        read.append(text[:left])
        left -= len(text)
    text = " ".join(read)
    letters = [char for char in text if char.isalpha()]
    if letters and 2 * sum(char < "\u0250" for char in letters) < len(letters):
        return False
    words = _LOWER_WORD.findall(text)  # names say nothing about the language around them
    if len({*words}) < _ENOUGH_WORDS:  # a table repeats the names of its columns
        return True
    english, foreign = (sum(word in common for word in words) for common in (COMMON, _FOREIGN))
    if english < _ENGLISH_SHARE * len(words):
        return english >= _HARDLY_ENGLISH * len(words) and foreign < english
    return True
