"""A Llama network on NumPy as a model over token ids that computes in the thread that calls it."""

from __future__ import annotations

from collections.abc import Set

import numpy as np

from ragguard.engines.labels import Asks, Logprobs
from ragguard.engines.llama.network import Network
from ragguard.engines.local.local_engine import Drawn, Rows, StillWanted, uniform
from ragguard.engines.requests import DrawRequest


class NetworkModel:
    """A `ComputingModel` on a network; `ends` are the tokens that end an answer."""

    def __init__(self, network: Network, ends: Set[int]) -> None:
        self._network, self._ends = network, ends

    def logprobs(self, rows: Rows, asks: Asks, still_wanted: StillWanted) -> Logprobs:
        """Returns for each ask (rows, its tokens): the log-probabilities of its tokens after the row and `after`."""
        starts = sorted({ask.after for ask in asks})
        columns = sorted({token for ask in asks for token in ask.tokens})
        asked = [[*row, *start] for row in rows for start in starts]
        found = self._network.next_logprobs(asked, columns, still_wanted).astype(np.float64)
        table = found.reshape(len(rows), len(starts), -1)
        return [
            table[:, starts.index(ask.after)][:, [columns.index(token) for token in ask.tokens]]
            for ask in asks
        ]

    def text_logprobs(self, rows: Rows, texts: Rows, still_wanted: StillWanted) -> list[list[float]]:
        """Returns the log-probabilities of the tokens of each row's text."""
        return self._network.text_logprobs(rows, texts, still_wanted)

    def draw(self, rows: Rows, request: DrawRequest, still_wanted: StillWanted) -> list[list[Drawn]]:
        """Returns `n` answers to each row; with a seed, by the seed and the row alone."""
        numbers = [uniform(row, request) for row in rows]
        drawn = self._network.sample(rows, numbers, request.temperature, self._ends, still_wanted)
        return [[Drawn(ids, values, ids[-1] in self._ends) for ids, values in answers] for answers in drawn]
