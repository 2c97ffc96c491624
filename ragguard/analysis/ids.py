"""Shortens run ids to the part that tells them apart, and finds the run that such a part belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ragguard.errors import UnknownName

SHORTEST = 8
_NAMED = 5


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
    allowed = "the id of a run, or any part of it that no other run has"
    if meant:
        shown = short_ids(ids)
        more = f" and {len(meant) - _NAMED} more" if len(meant) > _NAMED else ""
        allowed += f"; it fits {', '.join(shown[one] for one in meant[:_NAMED])}{more}"
    raise UnknownName("--run", f"{part} ({len(meant)} runs)", allowed)
