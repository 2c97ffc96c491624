"""The argument of "the missing 5" (arXiv:2511.09545, section 3.2) as numbers: what measures say where the only decisive
passage is missed, and where one of ten is found. No model takes part."""

from __future__ import annotations

import numpy as np

from ragguard.analysis.tables import Cell, Table
from ragguard.metrics import n_recall, ndcg, ra_nwg

K = 5
_REST = [3] * 20 + [1] * 20
_POOLS = {"one 5": [5, *_REST], "ten 5s": [5] * 10 + _REST}
_CHOSEN = {"none": [3] * K, "one": [5] + [3] * (K - 1), "five": [5] * K}
CASES = (("one 5", "none"), ("one 5", "one"), ("ten 5s", "none"), ("ten 5s", "one"), ("ten 5s", "five"))
"""The pools, and how many passages of grade 5 a system found."""


def missing_five() -> Table:
    """Makes the table: one row for each pool and for what was found of its passages of grade 5."""
    rows: list[tuple[Cell, ...]] = []
    for pool_name, found in CASES:
        pool, chosen = _POOLS[pool_name], _CHOSEN[found]
        gains, ideal = 2.0 ** np.array(chosen) - 1, 2.0 ** np.array(pool) - 1
        dcg = float((gains / np.log2(np.arange(2, K + 2))).sum())
        rows.append((
            f"{pool_name}: found {found}", dcg, float(ndcg(gains, K, ideal=ideal)),
            float(n_recall(pool, chosen, K, at_least=5)), float(ra_nwg(pool, chosen, K)),
        ))  # fmt: skip
    return Table(
        "sets-missing-five", "The missing 5", ("Pool", "DCG@5", "nDCG@5", "N-Recall5", "RA-nWG@5"), tuple(rows),
        source="arXiv:2511.09545, section 3.2",
        notes=(
            "A pool has one passage or ten of grade 5, 20 of grade 3 and 20 of grade 1. The model gets five "
            "passages, the best first; those that are not of grade 5 are of grade 3. Gains of DCG: 2^grade − 1. "
            "No model takes part.",
        ),
    )  # fmt: skip
