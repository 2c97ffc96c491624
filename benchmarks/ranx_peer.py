"""ranx's side of `benchmarks/metrics.py`, run in an environment of its own.

Takes the gains as a file; for every line that comes in, evaluates nDCG@10 once and answers with the seconds it took
and the mean.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from ranx import Qrels, Run, evaluate

gains = np.load(sys.argv[1])
width = gains.shape[1]
names = [f"d{p:03}" for p in range(width)]
qrels = Qrels(
    {
        f"q{i:05}": {name: int(g) for name, g in zip(names, row, strict=True) if g}
        for i, row in enumerate(gains)
    }
)
ranking = dict(zip(names, map(float, range(width, 0, -1)), strict=True))
run = Run({f"q{i:05}": ranking for i in range(len(gains))})
evaluate(qrels, run, "ndcg@10")
for _ in sys.stdin:
    start = time.perf_counter()
    mean = evaluate(qrels, run, "ndcg@10")
    print(time.perf_counter() - start, float(mean), flush=True)
