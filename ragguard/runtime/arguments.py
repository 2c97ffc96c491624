"""Checks of arguments that several constructors share: a wrong type is refused by name, before it is compared. And the
folders that variables of the environment name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ragguard.errors import InvalidInput, did_you_mean

LONGEST_WAIT = 1e8
"""Seconds, about three years: what the system's own waits can take, and as good as no limit."""
LARGEST = sys.float_info.max
"""The largest number that a float can hold; Python's integers go on."""
_MOST = 2**53


def whole_number(argument: str, value: object, least: int) -> int:
    """Returns an integer of at least `least` that a database can hold; a bool is refused."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST:
        raise InvalidInput(argument, value, f"a whole number, {least} or more")
    return value


def number_between(argument: str, value: object, low: float, high: float, allowed: str) -> float:
    """Returns a number from `low` to `high`; a bool and a NaN are refused."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidInput(argument, value, allowed)
    return value


def share(argument: str, value: object) -> float:
    """Returns a number from 0 to 1; a bool and a NaN are refused."""
    return number_between(argument, value, 0, 1, "a number from 0 to 1")


def true_or_false(argument: str, value: object) -> bool:
    """Returns a bool; anything else is refused, so that a text is not taken for True."""
    if not isinstance(value, bool):
        raise InvalidInput(argument, value, "True or False")
    return value


def one_of(argument: str, value: object, allowed: Sequence[str]) -> str:
    """Returns a text that is one of those allowed."""
    if not isinstance(value, str) or value not in allowed:
        raise InvalidInput(argument, value, did_you_mean(value, allowed) + " or ".join(map(repr, allowed)))
    return value


def seconds_to_wait(timeout: object) -> float:
    """Returns a timeout as a finite number; infinity is allowed and means no limit."""
    if not isinstance(timeout, int | float) or not timeout >= 0:
        raise InvalidInput("timeout", timeout, 'a number of seconds, 0 or more; float("inf") for no limit')
    return float(min(timeout, LONGEST_WAIT))


def milliseconds(argument: str, value: object) -> float:
    """Returns a time in milliseconds, more than 0; a bool, a NaN and infinity are refused."""
    allowed = "a number of milliseconds, more than 0"
    return float(number_between(argument, value, sys.float_info.min, LARGEST, allowed))


def file_path(argument: str, value: object) -> Path:
    """Returns the path of a file that is given as a text or a path."""
    try:
        text = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    except Exception as error:
        raise InvalidInput(argument, value, "the path of a file") from error
    if not text or not is_file_name(text) or text == ":memory:":
        raise InvalidInput(argument, value, "the path of a file; None keeps everything in memory")
    return Path(text)


def is_file_name(path: str | os.PathLike[str]) -> bool:
    """Returns False for a name that no file can have: with a NUL, or with characters that the system cannot encode."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeError:
        return False


def check_output(argument: str, value: object) -> None:
    """Raises InvalidInput for a file that cannot be written, or has no folder; for use before the work whose result
    goes there. None names no file, and is right."""
    if value is None:
        return
    path = file_path(argument, value)
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise InvalidInput(argument, str(path), "a file that can be written, in a folder that exists")


def references_of(value: object) -> list[str] | None:
    """Returns references as a list: one text is a list of one, None and an empty list are no references.

    Raises InvalidInput where all of them are blank: the run would be scored as one whose right answer is not known.
    """
    found = texts_of("references", value) or None
    if found is not None and not any(text.strip() for text in found):
        raise InvalidInput("references", value, "an answer that is not blank; None if none is known")
    return found


def texts_of(name: str, value: object) -> list[str] | None:
    """Returns texts as a list; None where none are given."""
    if value is None:
        return None
    if isinstance(value, str):
        return [value]
    if isinstance(value, Sequence) and all(isinstance(one, str) for one in value):
        return list(value)
    raise InvalidInput(name, value, "a text, or a list of texts")


def user_folder(variable: str, name: str) -> Path:
    """Returns the folder that a variable of the environment names, else `ragguard/NAME` in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get(variable) or Path(cache, "ragguard", name)).expanduser()
