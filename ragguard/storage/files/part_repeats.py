"""Runs of a folder of parts whose id stood before: the first run of each id is read, the others are left out.

The rows of a part stand in the order of its runs, and each run says how many scores and failures it has, so that the
rows of a run are found by counting. Knows the columns of the tables of parts, and neither files nor folders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragguard.errors import StoreError
from ragguard.storage.files.parttables import Table

Kept = NDArray[np.bool_]
_NEEDED = ("run_id", "scores", "failures")


@dataclass(frozen=True)
class RepeatedRuns:
    """The runs that are left out."""

    kept: Mapping[str, Mapping[Table, Kept]] = field(default_factory=dict)
    """Key of a part that has such runs → table → True for each row that is read."""
    count: int = 0
    """How many runs are left out."""

    def without(self, table: Table, key: str, found: Any) -> Any:
        """Returns a table of a part without the rows of these runs."""
        kept = self.kept.get(key, {}).get(table)
        if kept is None:
            return found
        if len(kept) != len(found):
            raise StoreError(
                f"the part {key} is damaged: its runs count {len(kept):,} rows of the table {table}, and it has "
                f"{len(found):,}; score into a new folder"
            )
        return found.filter(kept)


def find_repeats(
    keys: Sequence[str], hashes: Sequence[NDArray[np.int64]], read: Callable[[str, Sequence[str]], Any]
) -> RepeatedRuns:
    """Returns the runs that have the id of an earlier one: of these parts, in the order of the input, with the hashes
    of their runs' ids. `read` returns columns of a part's table of runs."""
    values, counts = np.unique(np.concatenate([np.empty(0, np.int64), *hashes]), return_counts=True)
    twice = values[counts > 1]
    kept: dict[str, Mapping[Table, Kept]] = {}
    seen: set[str] = set()
    left_out = 0
    for key, some in zip(keys, hashes, strict=True):
        places = np.flatnonzero(np.isin(some, twice)) if len(twice) else twice
        if not len(places):
            continue
        runs = read(key, _NEEDED)
        ids = runs["run_id"].take(places).to_pylist()
        first = np.ones(len(some), dtype=bool)
        for place, run_id in zip(places.tolist(), ids, strict=True):
            first[place] = run_id not in seen
            seen.add(run_id)
        if not first.all():
            left_out += int((~first).sum())
            scores, failures = (
                np.repeat(first, np.maximum(runs[name].fill_null(0).to_numpy(), 0))
                for name in ("scores", "failures")
            )
            kept[key] = {"runs": first, "scores": scores, "failures": failures}
    return RepeatedRuns(kept, left_out)
