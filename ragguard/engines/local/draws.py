"""The chance in sampling, for engines that draw in this process themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def draws(ids: Sequence[int], n: int, max_tokens: int, seed: int | None) -> NDArray[np.float64]:
    """(n, max_tokens) uniform numbers that depend on the seed and the prompt's token ids alone."""
    source = np.random.default_rng(None if seed is None else [seed % 2**63, *ids])
    return source.random((n, max_tokens))
