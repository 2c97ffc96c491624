"""Makes single lines, markup for Rich, and short ids of texts that come from outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.markup import escape

from ragguard.errors import UnknownName
from ragguard.text.secret_filter import strip_control_characters

LONGEST = 200
"""The most characters of a question that is shown in one line."""
_LINE = 2000
SHORTEST = 8
_NAMED, _LATEST = 5, 3


def line_of(text: str) -> str:
    """Returns the text in one line without control characters, cut after 2,000 characters."""
    return strip_control_characters(" ".join(text[:_LINE].split()))


def question_line(question: str) -> str:
    """Returns a question in one line of at most 200 characters, "(no question)" for an empty one."""
    line = " ".join(question.split())
    return (line if len(line) <= LONGEST else line[: LONGEST - 1] + "…") or "(no question)"


def as_markup(text: str) -> str:
    """Returns the text as markup for Rich, with escaped brackets and without control characters."""
    return escape(strip_control_characters(text))


def short_ids(ids: Iterable[str]) -> Mapping[str, str]:
    """Returns for each id the part to show: as few first or last characters as tell all of them apart, at least 8.

    Ids that begin with the time, such as UUIDs of version 7, differ only at their ends.
    """
    known = list(dict.fromkeys(ids))
    longest = max(map(len, known), default=0)
    for length in range(SHORTEST, longest):
        first, last = slice(length), slice(-length, None)
        for cut, other in ((first, last), (last, first)):
            parts = {one[cut]: one for one in known}
            if len(parts) == len(known) and all(parts.get(one[other], one) == one for one in known):
                return {one: one[cut] for one in known}
    return {one: one for one in known}


def run_of_part(part: str, ids: Sequence[str]) -> str:
    """Returns the id that equals `part`, else the only one with it at an end, else the only one that has it."""
    meant = [one for one in ids if part and part in one]
    at_ends = [one for one in meant if one.startswith(part) or one.endswith(part)]
    for found in ([one for one in at_ends if one == part], at_ends, meant):
        if len(found) == 1:
            return found[0]
    if not meant:
        latest = ", ".join(reversed(ids[-_LATEST:])) or "none"
        raise UnknownName(
            "--run", part, "the id of a run, the id that the application gave it, or any part of an id that no other "
            f"run has; the latest are {latest}, and `ragguard report` lists all with their questions",
        )  # fmt: skip
    shown = ", ".join(short_ids(ids)[one] for one in meant[:_NAMED])
    more = f" and {len(meant) - _NAMED} more" if len(meant) > _NAMED else ""
    allowed = f"any part of an id that no other run has; it fits {shown}{more}"
    raise UnknownName("--run", f"{part} ({len(meant)} runs)", allowed)
