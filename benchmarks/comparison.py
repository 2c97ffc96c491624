"""How often `compare` and its gate call a difference where there is none, and how often they find one.

    make bench-comparison

Two kinds of pairs without a difference are drawn. `alike`: both sides from one distribution. `skewed`: the questions'
differences have mean 0 and are skewed, such as many small rises and few large drops (`rare`: one question in ten). One
metric, ten, and 35 of which four decide, as a store has them. Any verdict of a difference is wrong, and any gate
`metric < -0.1` that fails; both should be at most 0.05. Power is for a difference of 0.2 standard deviations.
"""

from __future__ import annotations

import sys
from math import erf, sqrt
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import record
from benchmarks.options import parse, parser
from ragguard.analysis.gate_check import hold, parsed
from ragguard.analysis.pairs import PRIMARY_SHARE
from ragguard.metrics.arrays import Floats
from ragguard.metrics.mean_differences import mean_tests

QUESTIONS = (6, 8, 12, 20, 30, 60, 200)
KINDS = ("alike, normal", "alike, skewed", "skewed, exponential", "skewed, rare")
FAMILIES = {
    "1": [1.0],
    "10": [0.1] * 10,
    "4 of 35": [PRIMARY_SHARE / 4] * 4 + [(1 - PRIMARY_SHARE) / 31] * 31,
}
LEVEL = 0.05
RELATED = 0.5


def differences(random: np.random.Generator, kind: str, metrics: int, questions: int) -> Floats:
    """Returns the questions' differences of each metric; those of one question are related over metrics."""

    def normal() -> Floats:
        own = random.normal(size=(metrics, questions)) * sqrt(1 - RELATED)
        return own + random.normal(size=(1, questions)) * sqrt(RELATED)

    if kind == "alike, normal":
        return normal() - normal()
    if kind == "alike, skewed":
        return np.exp(1.2 * normal()) - np.exp(1.2 * normal())
    if kind == "skewed, exponential":
        return random.exponential(size=(metrics, questions)) - 1
    drops = random.random((metrics, questions)) < 0.1
    return np.where(drops, -1.0, 1 / 9) + random.normal(0, 0.01, (metrics, questions))


def called(kind: str, weights: list[float], questions: int, pairs: int) -> tuple[float, float, float]:
    """Returns the share of pairs with any verdict of a difference, and on the first metric the shares whose interval
    misses the true difference and whose gate fails."""
    random = np.random.default_rng([len(weights), questions, KINDS.index(kind)])
    condition = parsed("m < -0.1")
    different = missed = failed = 0
    for _ in range(pairs):
        found = mean_tests([*differences(random, kind, len(weights), questions)], weights, draws=999)
        different += min(test.p_adjusted for test in found) <= LEVEL
        missed += found[0].low > 0 or found[0].high < 0
        failed += not hold(condition, {"m": found[0][:3]}, "").passed
    return different / pairs, missed / pairs, failed / pairs


def power(questions: int, pairs: int) -> tuple[float, float]:
    """Returns how often a difference of 0.2 standard deviations is found, and by a z-test that knew the spread."""
    random = np.random.default_rng(questions)
    found = sum(mean_tests([random.normal(0.2, 1, questions)], draws=999)[0].p <= LEVEL for _ in range(pairs))
    return found / pairs, 0.5 * (1 + erf((0.2 * sqrt(questions) - 1.96) / sqrt(2)))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--pairs", type=int, default=1000)
    pairs = parse(options, pairs=2).pairs
    rows = []
    for kind in KINDS:
        for name, weights in FAMILIES.items():
            for questions in QUESTIONS:
                wrong, missed, failed = called(kind, weights, questions, pairs)
                rows.append([kind, name, questions, wrong, missed, failed])
                print(f"{kind:20} {name:8} n = {questions:3}: any {wrong:.3f}, gate {failed:.3f}", flush=True)
    powers = {str(questions): power(questions, pairs) for questions in (100, 200)}
    print(f"power at 0.2, by questions, and of a test that knows the spread: {powers}")
    columns = ["differences", "metrics", "questions", "any difference", "interval misses", "gate fails"]
    done = {"pairs": pairs, "columns": columns, "rows": rows, "power": powers}
    print(record("comparison", done))


if __name__ == "__main__":
    main()
