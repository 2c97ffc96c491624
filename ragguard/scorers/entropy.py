"""The standard error of the entropy of sampled meanings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def entropy_stderr(
    weights: NDArray[np.float64], clusters: NDArray[np.intp], draws: int = 1000, seed: int = 0
) -> float:
    """Returns the bootstrap standard error of `semantic_entropy` over its samples.

    The samples include one pseudo-sample of another meaning, since ten equal answers are no certainty.
    """
    n = len(weights)
    weight = np.append(weights, weights.mean())
    meaning = np.eye(int(clusters.max()) + 2)[np.append(clusters, clusters.max() + 1)]
    drawn = np.random.default_rng(seed).integers(0, n + 1, (draws, n))
    times = np.zeros((draws, n + 1))
    np.add.at(times, (np.arange(draws)[:, None], drawn), 1.0)
    mass = (times * weight) @ meaning
    # A draw that has only answers without weight is left out.
    mass = mass[mass.sum(axis=1) > 0]
    mass /= mass.sum(axis=1, keepdims=True)
    entropies = -(mass * np.log(np.where(mass > 0, mass, 1))).sum(axis=1)
    return float(entropies.std())
