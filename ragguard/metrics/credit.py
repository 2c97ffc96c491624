"""Metrics of what each hop of a run is worth among all its hops: what is lost without it, and Shapley's value.

The source is Shapley, "A value for n-person games" (1953). The players are the hops of a run; the value of a set of
hops is the belief in the reference after the model has read the passages of these hops alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from ragguard.errors import InvalidInput
from ragguard.metrics import arrays
from ragguard.metrics.answers import mean_logprob, query_gain
from ragguard.metrics.arrays import Floats, Value
from ragguard.metrics.registry import Metric, declare

SOURCE = "Shapley 1953"
MOST_EXACT = 16
"""The most players whose credit is computed from all their sets."""


def shapley(values: ArrayLike) -> Floats:
    """Returns each player's mean gain over all orders in which the players may come; the gains sum to the value of all
    less the value of none.

    `values[s]` on the last axis is the value of a set of players: player i is in it if bit i of s is set, so that
    `values[0]` is the value of none and the last one the value of all.
    """
    read = arrays.read("values", values)
    return np.asarray(read @ shapley_weights(_players("values", read)).T)


def shapley_weights(players: int) -> Floats:
    """Returns (players, sets): the coefficients of the values of all sets in each player's Shapley value."""
    n = arrays.count("players", players, 0, MOST_EXACT)
    sets = np.arange(1 << n)
    sizes = np.bitwise_count(sets)
    # Of the orders of n players, this share has the given ones, whose number is `size`, before the player.
    share = np.array([1 / (n * math.comb(n - 1, size)) for size in range(n)])
    weights = np.empty((n, 1 << n))
    for player in range(n):
        inside = (sets >> player) & 1 == 1
        weights[player, inside] = share[sizes[inside] - 1]
        weights[player, ~inside] = -share[sizes[~inside]]
    return weights


def loss_without(values: ArrayLike) -> Floats:
    """Returns what is lost without each player: the value of all less that of all others; `values` as for
    `shapley`."""
    read = arrays.read("values", values)
    everyone = read.shape[-1] - 1
    others = [everyone ^ (1 << player) for player in range(_players("values", read))]
    return np.asarray(read[..., everyone, None] - read[..., others])


def antithetic_orders(players: int, seed: int = 0) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yields orders of the players in pairs, each order with its reverse: first the given one, then random ones."""
    rng = np.random.default_rng(arrays.count("seed", seed, 0))
    order = np.arange(arrays.count("players", players, 0))
    while True:
        yield tuple(map(int, order)), tuple(map(int, order[::-1]))
        order = rng.permutation(players)


def shapley_of_orders(gains: ArrayLike) -> tuple[Value, Value]:
    """Returns a player's mean gain over some orders, and its standard error over the orders: `gains` on the last
    axis."""
    read = arrays.read("gains", gains)
    orders = read.shape[-1]
    if orders < 2:
        return arrays.plain(read.mean(axis=-1)), arrays.plain(np.full(read.shape[:-1], np.nan))
    error = read.std(axis=-1, ddof=1) / math.sqrt(orders)
    return arrays.plain(read.mean(axis=-1)), arrays.plain(error)


def joint_gain(question: float, reference: float) -> float:
    """Returns how a hop bears on question and answer together: the sum of its question gain, above that of the run's
    passages on average, and its reference gain."""
    return arrays.parameter("question", question) + arrays.parameter("reference", reference)


SAME = 0.05
"""The difference of two beliefs below which they count as the same, if their errors are smaller."""


def enough_after(beliefs: ArrayLike, errors: ArrayLike) -> int:
    """Returns how many hops it took until the belief stayed as it is at the end, within two standard errors of the
    difference: `beliefs[0]` without retrieval, `beliefs[t]` after hops 1..t, each with its standard error."""
    known, spread = arrays.read("beliefs", beliefs), arrays.read("errors", errors, low=0)
    arrays.same(beliefs=known, errors=spread)
    if known.ndim != 1 or not known.size:
        raise InvalidInput("beliefs", beliefs, "a list with at least the belief without retrieval")
    allowed = np.maximum(SAME, 2 * np.hypot(spread, spread[-1]))
    differs = np.flatnonzero(np.abs(known - known[-1]) >= allowed)
    return int(differs[-1]) + 1 if differs.size else 0


USED = 0.05
"""The change of the likelihood of the run's own answer from which it rests on a passage."""


def is_used(lost: float, alone: float) -> bool:
    """Returns whether an answer rests on a passage: whether its likelihood falls without the passage, or rises by it
    alone, as of two passages that say the same neither is missed."""
    return max(lost, alone) >= USED


def _players(name: str, values: Floats) -> int:
    size = int(values.shape[-1])
    if size < 1 or size & (size - 1) or size > 1 << MOST_EXACT:
        raise InvalidInput(
            f"{name}.shape", values.shape, f"2**n values, n up to {MOST_EXACT}: one for each set"
        )
    return size.bit_length() - 1


declare(
    Metric(
        "credit", "Credit of the hop",
        "The hop's share in what all hops did to the belief, over all orders; a run's hops sum to its total.",
        range=(-1, 1), unit="probability", needs="the beliefs after sets of the run's hops", source=SOURCE,
        levels=("step",), function=shapley,
    ),
    Metric(
        "loss_without", "Lost without the hop",
        "The belief after all hops minus the belief after all hops except this one.", range=(-1, 1), unit="probability",
        needs="the beliefs after all hops and after all others", source="leave one out", levels=("step",),
        function=loss_without,
    ),
    Metric(
        "question_gain", "Question gain",
        "How much likelier the passage, or the hop's best one, makes the run's question; runs of several hops.",
        range=(float("-inf"), float("inf")), unit="nats", needs="the probabilities of given texts",
        source="query likelihood (Ponte and Croft, 1998)", levels=("passage", "step"), function=query_gain,
    ),
    Metric(
        "reference_gain", "Reference gain of the hop",
        "How much less probable the reference is without the hop: mean log-probability of a token.",
        range=(float("-inf"), float("inf")), unit="nats", needs="the likelihoods after all hops and after all others",
        source="leave one out", levels=("step",), function=mean_logprob,
    ),
    Metric(
        "joint_gain", "Joint gain",
        "How much it raises the question's likelihood, plus what the reference loses without it; several hops.",
        range=(float("-inf"), float("inf")), unit="nats", needs="the probabilities of given texts, references",
        source="pointwise mutual information with question and answer", levels=("step", "passage"),
        function=joint_gain,
    ),
    Metric(
        "enough_after", "Enough after",
        "The hop after which the belief stays as it is at the end, within its error; 0: before the first.",
        range=(0, float("inf")), direction="neither", unit="hop", needs="the beliefs after each hop",
        source="ragguard", levels=("run",), function=enough_after,
    ),
    Metric(
        "redundant_hops", "Redundant hops", "How many hops came after it was enough.", range=(0, float("inf")),
        direction="lower", unit="hops", needs="the beliefs after each hop", source="ragguard", levels=("run",),
        function=enough_after,
    ),
    Metric(
        "contribution", "Contribution of the passage",
        "The likelihood of the answer after all passages read, minus that after all except this one.", range=(-1, 1),
        unit="probability", needs="the probabilities of given texts, an answer", source="leave one out",
        levels=("passage",), function=loss_without,
    ),
    Metric(
        "unused_share", "Unused passages", "The share of the passages read on which the run's answer does not rest.",
        direction="lower", unit="share", needs="the contributions of all passages to the run's own answer",
        source="leave one out", levels=("run",),
    ),
    Metric(
        "cited_used", "Citations that are used",
        "The share of the passages cited by number, as [2], on which the run's answer rests.", unit="share",
        needs="the contributions of all passages to the run's own answer", source="leave one out", levels=("run",),
    ),
)  # fmt: skip
