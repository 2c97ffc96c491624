"""Normalises how a text is written in Unicode. All rules by which texts are compared begin with one of two:

folded("Ｃafé")            # "café": compatible forms and case, for whatever keeps its letters
without_accents("Ｃafé")   # "Cafe": for words that people write with accents or without
"""

from __future__ import annotations

import unicodedata

_VOICING = "\u3099\u309a"
"""The marks that make another sound of a kana, as of か: accents in Unicode, but not for a reader."""


def compatible(text: str) -> str:
    """Returns a text in the one form of its characters (NFKC): ligatures, wide letters and exponents are plain."""
    return unicodedata.normalize("NFKC", text)


def folded(text: str) -> str:
    """Returns a text in the one form of its characters, without case."""
    return compatible(compatible(text).casefold())


def without_accents(text: str) -> str:
    """Returns a text in the one form of its characters, without accents and other marks above or below letters."""
    marked = unicodedata.normalize("NFKD", text)
    return compatible("".join(char for char in marked if not unicodedata.combining(char) or char in _VOICING))
