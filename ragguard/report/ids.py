"""Shortens run ids to the part that tells them apart, and finds the run that such a part belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

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
        for cut, other in ((_first(length), _last(length)), (_last(length), _first(length))):
            parts = {cut(one): one for one in known}
            if len(parts) == len(known) and all(parts.get(other(one), one) == one for one in known):
                return {one: cut(one) for one in known}
    return {one: one for one in known}


def run_of_part(part: str, ids: Sequence[str]) -> str:
    """Returns the id that equals `part`, else the only one with it at an end, else the only one that has it."""
    meant: list[str] = []
    if part:
        for fits in (part.__eq__, _begins_or_ends(part), _holds(part)):
            found = [one for one in ids if fits(one)]
            if len(found) == 1:
                return found[0]
            meant = found or meant
    allowed = "the id of a run, or any part of it that no other run has"
    if meant:
        shown = short_ids(ids)
        more = f" and {len(meant) - _NAMED} more" if len(meant) > _NAMED else ""
        allowed += f"; it fits {', '.join(shown[one] for one in meant[:_NAMED])}{more}"
    raise UnknownName("--run", f"{part} ({len(meant)} runs)", allowed)


def _first(length: int) -> Callable[[str], str]:
    return lambda one: one[:length]


def _last(length: int) -> Callable[[str], str]:
    return lambda one: one[-length:]


def _begins_or_ends(part: str) -> Callable[[str], bool]:
    return lambda one: one.startswith(part) or one.endswith(part)


def _holds(part: str) -> Callable[[str], bool]:
    return lambda one: part in one
