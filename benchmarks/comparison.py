"""How often `compare` and `validate` call a difference where there is none, and how often they find one.

    make bench-comparison

Pairs of sides are drawn from one distribution, so that each verdict of a difference is wrong: normal and skewed
values, one metric and ten (unrelated, and related as metrics of one run are). The share of wrong verdicts should be
0.05; with six questions no exact test can be closer than 1/32. Power is for a difference of 0.2 standard deviations.
"""

from __future__ import annotations

import sys
from math import erf, sqrt
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import record
from benchmarks.options import parse, parser
from ragguard.metrics.agreement import sign_flips
from ragguard.metrics.arrays import Floats

QUESTIONS = (6, 7, 8, 9, 12, 16, 20, 30, 60, 100, 200)
KINDS = ("normal", "skewed")
LEVEL = 0.05


def drawn(random: np.random.Generator, kind: str, metrics: int, questions: int, related: float) -> Floats:
    """Values of one side: (metrics, questions)."""
    own = random.normal(size=(metrics, questions)) * sqrt(1 - related)
    values = own + random.normal(size=(1, questions)) * sqrt(related)
    return np.exp(1.2 * values) if kind == "skewed" else values


def called(
    kind: str, metrics: int, questions: int, related: float, pairs: int, effect: float = 0.0
) -> tuple[float, float]:
    """The share of pairs with any verdict of a difference, and of those whose interval holds the true difference."""
    random = np.random.default_rng([metrics, questions, int(related * 10)])
    different = held = 0
    for _ in range(pairs):
        before, after = (drawn(random, kind, metrics, questions, related) for _ in range(2))
        found = sign_flips([*(after + effect - before)], draws=1999)
        different += min(one.p_adjusted for one in found) <= LEVEL
        held += found[0].low <= effect <= found[0].high
    return different / pairs, held / pairs


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--pairs", type=int, default=2000)
    pairs = parse(options, pairs=2).pairs
    rows = []
    for kind in KINDS:
        for metrics, related in ((1, 0.0), (10, 0.0), (10, 0.5)):
            for questions in QUESTIONS:
                wrong, held = called(kind, metrics, questions, related, pairs)
                rows.append([kind, metrics, related, questions, wrong, held])
                where = f"{kind:7} {metrics:2} metrics, related {related}: n = {questions:3}"
                print(f"{where}: any {wrong:.3f}, held {held:.3f}", flush=True)
    power = {}
    for questions in (100, 200):
        found, _ = called("normal", 1, questions, 0.0, pairs, effect=0.2 * sqrt(2))
        # A z-test that knew the standard deviation, which nothing can beat.
        power[str(questions)] = [found, 0.5 * (1 + erf((0.2 * sqrt(questions) - 1.96) / sqrt(2)))]
        best = power[str(questions)][1]
        print(f"power at 0.2, n = {questions}: {found:.3f}; of a test that knows the spread {best:.3f}")
    columns = ["values", "metrics", "related", "questions", "any difference", "interval holds"]
    print(record("comparison", {"pairs": pairs, "columns": columns, "rows": rows, "power": power}))


if __name__ == "__main__":
    main()
