"""Says of a hop what did not fit the context of the model that judged it, from the metadata of the hop's scores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Shortened: TypeAlias = tuple[int | None, str, object, object]
"""A score about less than the passages hold: rank of its passage, name, passages left out, tokens cut."""

_OF_ALL_READ = ("delta_seper", "semantic_entropy")
"""The scores of a step that are about all passages read so far."""


def remarks_on_fit(scores: Iterable[Shortened]) -> list[str]:
    """Returns what did not fit for the beliefs of a hop, and which passages did not fit alone; empty where all did."""
    left_out = cut = 0
    alone: set[int] = set()
    for rank, name, *counts in scores:
        dropped, tokens = (count if isinstance(count, int) else 0 for count in counts)
        if rank is None and name in _OF_ALL_READ:
            left_out, cut = max(left_out, dropped), max(cut, tokens)
        elif rank is not None and name != "utility_given" and tokens:
            alone.add(rank)
    tokens_cut = f"{cut:,} token{' was' if cut == 1 else 's were'} cut"
    found: list[str] = []
    if left_out:
        rest = f", and from the rest {tokens_cut}" if cut else ""
        found.append(
            f"{left_out:,} of the passages read so far did not fit the model's context and "
            f"{'was' if left_out == 1 else 'were'} left out of ΔSePer{rest}"
        )
    elif cut:
        found.append(
            f"the passages read so far did not fit the model's context: for ΔSePer, {tokens_cut} from them"
        )
    if alone:
        ranks = ", ".join(map(str, sorted(alone)))
        found.append(
            f"passage{'' if len(alone) == 1 else 's'} {ranks} did not fit the model's context alone: "
            f"{'its' if len(alone) == 1 else 'their'} own scores are about a part"
        )
    return found
