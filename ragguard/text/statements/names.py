"""Names and figures in a text, and the forms in which a name is looked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ragguard.text import lexicon
from ragguard.text.statements.phrases import Phrase, findable, mentions
from ragguard.text.statements.words import is_small
from ragguard.text.words import DASHES

MARKS = ".,;:!?\"'“”‘’()[]"
_ENDS = ",.;:!?"
"""The marks behind which no name goes on."""
_BEGINS_FIGURE = re.compile(rf"[{DASHES}+±~≈]?[$€£¥]?\d")
_SHORT_TITLES = lexicon.words("titles", "short")
_NO_NAME = _SHORT_TITLES | lexicon.words("titles", "titles") | lexicon.words("function_words", "openings")
"""Titles, and function words that `is_small` has not, which may stand before a name with a capital."""


def names_in(text: str) -> list[str]:
    """Returns the names in a text: runs of words that begin with capitals, and figures; without a sentence's first word
    where that stands alone."""
    names: list[str] = []
    name: list[str] = []
    first = begins = True
    for word in [*text.replace(" %", "%").split(), ""]:
        bare = word.strip(MARKS).removesuffix("'s").removesuffix("’s")
        is_name = (bare[:1].isupper() or _BEGINS_FIGURE.match(bare) is not None) and not _is_i(bare, name)
        if is_name:
            begins = begins if name else first
            name.append(bare)
        goes_on = is_name and (word[-1] not in _ENDS or (word[-1] == "." and bare.lower() in _SHORT_TITLES))
        if name and not goes_on:
            is_lone = len(name) == 1 and begins and not _BEGINS_FIGURE.match(name[0])
            if not is_lone and not _is_title(name):
                names.append(" ".join(name))
            name = []
        first = word[-1:] in tuple(".!?")
    return names


def _is_title(name: Sequence[str]) -> bool:
    """Returns whether words with capitals are a short title without a name, as "By Dr."."""
    words = {word.lower() for word in name}
    return bool(words & _SHORT_TITLES) and all(word in _SHORT_TITLES or is_small(word) for word in words)


def _is_i(word: str, name: Sequence[str]) -> bool:
    """Returns whether a word is the pronoun, as in "I believe" or "I’m", and no part of a name, as in "Elizabeth I"."""
    return not name and word.partition("'")[0].partition("’")[0] == "I"


def new_names(answer: str, question: str) -> dict[str, list[Phrase]]:
    """Returns the names and figures of an answer that the question does not have, each with the forms in which it is
    looked for."""
    names = {name: findable(forms_of(name, answer)) for name in names_in(answer)}
    return {name: forms for name, forms in names.items() if forms and not mentions(question, forms)}


def absent_names(query: str, texts: Iterable[str]) -> list[str]:
    """Returns the names in a query if the texts have none of them, and so may be about something else; else nothing."""
    read, names = [*texts], new_names(query, "")
    unknown = not read or not all(text.strip() for text in read)
    return (
        [] if unknown or any(mentions(text, forms) for text in read for forms in names.values()) else [*names]
    )


def forms_of(name: str, answer: str) -> Iterator[str]:
    """Yields a name, and without words before it that are no part of it: titles, function words, and the first word of
    a sentence if two remain."""
    yield name
    words = name.split()
    begins = re.search(rf"(?:^|[.!?]\s+){re.escape(name)}", answer) is not None
    while len(words) > 1:
        first = words.pop(0).lower().strip(".")
        if not (first in _NO_NAME or is_small(first) or (begins and len(words) > 1)):
            return
        begins = False
        yield " ".join(words)
