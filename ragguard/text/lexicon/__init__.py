"""The words of languages on which rules about texts rest, as data: one file for each kind, languages beside each other.

    abstentions.toml      phrases by which an answer says that it is none
    dates.toml            months, weekdays and times
    denials.toml          words that deny what stands beside them, or say it in passing
    function_words.toml   words that say nothing about a subject
    numbers.toml          numbers written out
    questions.toml        words by which a question asks for a kind of answer
    short_forms.toml      short forms and other spellings
    titles.toml           titles before names
    units.toml            units by their kind, with their sizes

A file has a table for each language, and says at its top what the fields of a table are.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def languages(kind: str) -> Mapping[str, Mapping[str, Any]]:
    """Returns the tables of a kind by language."""
    return tomllib.loads((files(__package__) / f"{kind}.toml").read_text(encoding="utf-8"))


def words(kind: str, field: str, language: str = "") -> frozenset[str]:
    """Returns the words of a field: those of a language, or of every language that has it."""
    known = languages(kind)
    tables = [known[language]] if language else known.values()
    return frozenset(word for table in tables for word in table.get(field, "").split())
