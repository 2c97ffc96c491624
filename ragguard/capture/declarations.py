"""Warnings about what a user declared and capture does not find, in the same words for every framework."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

_PREFIX = "ragguard_"


def unknown_key(key: str, known: Iterable[str]) -> str:
    """The warning about a `ragguard_...` key of metadata, or a tag, that nothing reads."""
    names = sorted(known)
    endings = {name.removeprefix(_PREFIX): name for name in names}  # all are alike by their beginning
    close = difflib.get_close_matches(key.removeprefix(_PREFIX), list(endings), 1)
    meant = f"; did you mean {endings[close[0]]!r}?" if close else "."
    return f"{key!r} is not a key that ragguard reads, so it is ignored{meant} Known keys: {', '.join(names)}"


def never_called(declared: Sequence[str], called: Iterable[str]) -> str:
    """The warning about declared tools of which no call was seen; `called` are the names of the tools that were."""
    names = ", ".join(map(repr, declared))
    seen = ", ".join(map(repr, sorted(set(called)))) or "none"
    return (
        f"tools={{...}} declares {names}, and no tool of {'that name' if len(declared) == 1 else 'those names'} was "
        f"called; tools that were called: {seen}. Check the spelling"
    )
