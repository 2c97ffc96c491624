"""Normalises the texts of answers for comparison, with words and patterns of a language."""

from __future__ import annotations

import re
import string
import unicodedata
from dataclasses import dataclass, fields

from ragguard.errors import InvalidInput

ABSTENTION = "NO-RESPONSE"
"""The label that ragguard's own prompts tell a model to say where it has no answer; an abstention in every language."""
_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ONE_FORM = str.maketrans(
    {**dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
     **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"), **dict.fromkeys("\u201c\u201d\u201e\u201f", '"')}
)  # fmt: skip
"""Dashes and quotation marks that differ by typography alone."""
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

    def __repr__(self) -> str:
        """Returns `ENGLISH` for what ships, whose words fill pages, else the fields that are declared."""
        if self == ENGLISH:
            return "ENGLISH"
        declared = ((one.name, getattr(self, one.name)) for one in fields(self))
        return f"Language({', '.join(f'{name}={words!r}' for name, words in declared if words)})"


_SOURCES = (
    "passage", "passages", "context", "document", "documents", "text", "texts", "article", "articles", "source",
    "sources", "excerpt", "excerpts", "material",
)  # fmt: skip
_SAY_NOTHING = (
    "does not", "do not", "doesnt", "dont", "did not", "didnt", "says nothing", "say nothing", "provides no",
    "provide no", "contains no", "contain no", "makes no", "make no", "gives no", "give no", "has no", "have no",
    "lacks", "lack", "fails to", "fail to", "is silent", "are silent", "is insufficient", "are insufficient",
    "provides insufficient", "provide insufficient", "contains insufficient", "contain insufficient",
    "gives insufficient", "give insufficient", "offers no", "offer no",
)  # fmt: skip
_MISSING = (
    "mentioned", "stated", "given", "specified", "provided", "listed", "discussed", "described", "known", "clear",
    "available", "found", "disclosed", "recorded", "included", "answered", "covered",
)  # fmt: skip
ENGLISH = Language(
    articles=("a", "an", "the"),
    abstentions=(
        "no response", "noresponse", "no answer", "none of passages", "none of documents", "none of these",
        "i dont know", "i do not know", "dont know", "we dont know", "we do not know", "nobody knows", "no one knows",
        "not sure", "im not sure", "i am not sure", "im not certain", "i am not certain", "im uncertain",
        "i am uncertain", "i cannot", "i cant", "i can not", "i could not", "i couldnt", "we cannot", "we cant",
        "cannot be determined", "cant be determined", "cannot be answered", "cant be answered", "cannot answer",
        "cant answer", "cannot determine", "cant determine", "cannot say", "cant say", "cannot tell", "cant tell",
        "unable to", "i am unable", "im unable", "i was unable", "it is not possible to", "its not possible to",
        "it is impossible to", "its impossible to", "impossible to say", "impossible to tell",
        "impossible to determine", "impossible to know", "hard to say",
        "it is hard to say", "its hard to say", "it is unclear", "its unclear", "it is unknown", "its unknown",
        "it is not known who", "it is not known what", "it is not known when", "it is not known where",
        "it is not known how", "it is not known whether", "it does not say", "it doesnt say", "it does not mention",
        "it doesnt mention", "i have no information", "i have no idea", "no idea", "i dont have", "i do not have",
        "im not able to", "i am not able to", "i have no clue", "no clue", "i have no way of", "i have not found",
        "i havent found", *(
            f"{need} more {what}"
            for need in ("i need", "i would need", "id need")
            for what in ("information", "context", "details")
        ),
        "more information is", "more context is",
        "hard to tell", "no way to know", "no way to tell", "no way of knowing", "it isnt possible to",
        "there is insufficient", "there is no way", "theres no way", "i lack", "i dont see", "i do not see",
        "i did not find", "i didnt find", "i found no", "i would rather not",
        "id rather not", "i would only be guessing", "id only be guessing", "i must abstain", "i abstain", "ill pass",
        *(
            f"{there} {what}"
            for there in (
                "there is no", "there are no", "theres no", "there isnt any", "there is not any", "there was no",
                "i see no", "no", "insufficient", "not enough",
            )
            for what in (
                "information", "mention", "reference to", "details", "detail", "data", "indication", "context",
                "evidence",
            )
        ),
        *(
            f"{what} {cannot} be {judged}"
            for what in ("it", "this", "that", "this question", "that question")
            for cannot in ("cannot", "cant", "can not", "could not", "couldnt")
            for judged in ("determined", "answered", "established", "inferred", "known", "said", "told", "found")
        ),
        *(
            f"{none} {source} {says}"
            for none in ("no", "neither")
            for source in _SOURCES
            for says in (
                "mentions", "mention", "states", "state", "says", "say", "contains", "contain", "gives", "give",
                "provides", "provide", "answers", "answer", "names", "name", "specifies", "specify",
            )
        ),
        *(
            f"none of {which}{source}"
            for which in ("given ", "provided ", "retrieved ", "these ")
            for source in _SOURCES
        ),
        *(f"{which}information is not in" for which in ("", "this ", "that ", "requested ", "required ")),
        "there is not enough", "there isnt enough", "there is no answer", "there is no record", "it is uncertain",
        "no relevant", "nothing in", "there is nothing", "theres nothing",
        *(
            f"{before}{source}{behind} {silent}"
            for before, behind in (("", ""), ("provided ", ""), ("given ", ""), ("retrieved ", ""), ("", " provided"))
            for source in (*_SOURCES, "information")
            for silent in _SAY_NOTHING
        ),
        *(
            f"i {really} {dont_know}"
            for really in ("really", "honestly", "simply", "just", "actually")
            for dont_know in ("dont know", "do not know", "cannot", "cant", "could not", "couldnt")
        ),
        *(f"it is not {what}" for what in ("stated", "mentioned", "specified", "given", "provided", "disclosed")),
        *(
            f"{we_have_no} {what}"
            for we_have_no in ("we do not have", "we dont have", "no such", "i have no")
            for what in (
                "information", "that information", "this information", "enough", "data", "details", "answer", "record",
                "knowledge", "person is mentioned",
            )
        ),
        "nothing was found", "nothing found", "no results", "no result", "no matching", "no record of", "no records of",
        "i found nothing", "id have to guess", "i would have to guess", "i would be guessing", "youd have to look",
        "i prefer not to", "id prefer not to", "i must decline", "i decline to", "i wont speculate",
        "i will not speculate",
        "answer does not appear", "answer doesnt appear",
        "question cannot be answered", "question cant be answered", "answer cannot be", "answer cant be",
        "answer is not in", "answer is not given", "answer isnt",
    ),
    blanks=(
        "unknown", "unanswerable", "question is unanswerable", "unclear", "uncertain", "undetermined", "unspecified",
        "not applicable",
        "it remains unclear", "it remains unknown", "undisclosed", "who knows", "beats me",
    ),
    lead_ins=(
        "apologies", "apologies but", "my apologies", "my apologies but", "sorry", "i am sorry", "im sorry",
        "sorry but", "i am sorry but", "im sorry but", "i apologize", "i apologise",
        "unfortunately", "im afraid", "i am afraid", "im afraid that", "answer is",
        *(
            f"{by} {which}{what}"
            for by in ("based on", "from", "according to", "given", "in")
            for which in ("", "provided ", "given ", "retrieved ", "these ", "this ")
            for what in (*_SOURCES, "information")
        ),
        *(f"{by} {what} alone" for by in ("based on", "from") for what in (*_SOURCES, "information")),
        "as an ai", "as ai", "as ai language model", "as ai model",
        *(f"based on {what} provided" for what in (*_SOURCES, "information")),
    ),
    turns=(
        "but", "however", "although", "though", "yet", "maybe", "perhaps", "possibly", "probably", "most likely",
        "i think", "i believe", "i guess", "i would guess", "id guess", "my guess", "my best guess", "best guess",
        "i would say", "id say",
    ),
    endings=tuple(
        f"{is_not} {what}"
        for is_not in ("not", "isnt", "arent", "wasnt", "werent", "never")
        for what in _MISSING
    ) + tuple(
        f"{remains} {what}"
        for remains in ("is", "are", "was", "were", "remains", "remain")
        for what in ("unknown", "unclear", "uncertain", "undetermined", "unspecified")
    ),
    sources=(*_SOURCES, "anywhere", "here", "me", "all"),
)  # fmt: skip


def normalise(text: str, language: Language = ENGLISH) -> str:
    """Returns a text in the form in which answers are compared: Unicode NFKC, case, punctuation, articles and white
    space evened out.

    Text that holds nothing else keeps its articles ("A" is an answer, too), then its punctuation.
    """
    _check(text, language)
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    if plain.isascii():
        words = plain.translate(_ASCII_PUNCTUATION).split()
    else:
        spoken = "".join(char for char in plain if not _punctuation(char))
        words = unicodedata.normalize("NFKC", spoken).split()  # an accent may have come next to its letter
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
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", marked).casefold()).translate(
        _ONE_FORM
    )
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
    return (
        not char.isascii()
        and not char.isdecimal()
        and any(map(str.isdigit, unicodedata.normalize("NFKC", char)))
    )


def _check(text: object, language: object) -> None:
    if not isinstance(text, str):
        raise InvalidInput("text", text, "a string")
    if not isinstance(language, Language):
        raise InvalidInput("language", language, "a Language, such as ENGLISH")


def _punctuation(char: str) -> bool:
    return char in string.punctuation or unicodedata.category(char).startswith("P")
