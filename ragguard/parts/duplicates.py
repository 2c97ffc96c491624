"""Finds run ids that stand in two places of an input, in bounded memory however many runs there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragguard.storage.files.partfolder import PartFolder

AT_ONCE = 8_000_000
"""The number of runs that are compared at once; more take another pass over the ids."""
MOST = 1000
"""The most duplicates that are named."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A run id that two runs have, so that its scores stand twice."""

    run_id: str
    places: tuple[str, ...]
    """The files and bytes or rows where runs with this id begin."""

    def __str__(self) -> str:
        return f"{self.run_id!r} in {' and '.join(self.places)}"


def find_duplicates(
    folder: PartFolder, keys: Sequence[str], runs: int, at_once: int = AT_ONCE
) -> list[Duplicate]:
    """Returns the run ids that stand twice in these complete parts, at most 1,000, in order.

    Args:
        folder: The folder of scores.
        keys: The complete parts that are looked at.
        runs: About how many runs they hold.
        at_once: How many ids are held in memory.
    """
    passes = max(1, -(-runs // at_once))
    twice: set[int] = set()
    for number in range(passes):
        hashes = np.sort(np.concatenate([np.empty(0, np.int64), *_hashes(folder, keys, passes, number)]))
        twice.update(int(one) for one in hashes[1:][hashes[1:] == hashes[:-1]][: 2 * MOST])
    return _places(folder, keys, sorted(twice)) if twice else []


def _hashes(folder: PartFolder, keys: Iterable[str], passes: int, number: int) -> Iterator[NDArray[np.int64]]:
    for batch in folder.read("runs", keys, ["run_hash"]):
        values = batch.column(0).to_numpy(zero_copy_only=False)
        yield values if passes == 1 else values[values % passes == number]


def _places(folder: PartFolder, keys: Sequence[str], hashes: Sequence[int]) -> list[Duplicate]:
    import pyarrow.compute as compute

    found: dict[str, list[tuple[str, int]]] = {}
    where = compute.field("run_hash").isin(hashes)
    for batch in folder.read("runs", keys, ["run_id", "place", "__filename"], where=where):
        for run_id, place, path in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            found.setdefault(run_id, []).append((path.rpartition("/")[2].removesuffix(".parquet"), place))
    twice = {run_id: sorted(places) for run_id, places in sorted(found.items()) if len(places) > 1}
    counts = {one.key: one for one in folder.counts({key for some in twice.values() for key, _ in some})}

    def said(key: str, place: int) -> str:
        return f"{counts[key].source}, {'row' if counts[key].kind == 'parquet' else 'byte'} {place}"

    named = [
        Duplicate(run_id, tuple(sorted(said(*one) for one in places))) for run_id, places in twice.items()
    ]
    return named[:MOST]
