"""The text of answers as they are compared: the normal form of a text, and what it takes from a language."""

from __future__ import annotations

import string
import unicodedata
from dataclasses import dataclass

from ragguard.errors import InvalidInput

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


def _punctuation(char: str) -> bool:
    return char in string.punctuation or unicodedata.category(char).startswith("P")
