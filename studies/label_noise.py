"""LabelNoise: a judge made weaker by a known amount, for studies of how much a judge's errors cost.

Knows no passage and no truth: how much noise gives which judge is found in `studies/weak_judges.py`.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragguard.engines.base import Engine, EngineInfo, Prompt
from ragguard.engines.engine import Layer
from ragguard.engines.labels import LabelRequest
from ragguard.engines.requests import Reply, Request
from ragguard.errors import InvalidInput

_LEAST = 1e-12


class LabelNoise(Layer):
    """Adds seeded Gaussian noise to the log-odds of labels. Equal seeds and prompts give equal noise.

    The log-odds of the first label against the last get noise of standard deviation `scale`; labels between them
    get as much of it as they stand nearer to one end, so that a rating is shifted up or down as a whole. The
    probability that all labels have together stays as it was. Sampled answers are handed on unchanged.

    Put the layer outermost, as `LabelNoise(connect("nano"), …)`: the cache below keeps what the engine itself said,
    and judges of several strengths share it.

    Args:
        engine: The engine that the layer wraps.
        scales: By the labels of a question, the standard deviation of the noise. Questions with other labels are
            answered without noise.
        seed: Another seed gives another judge of the same strength.
    """

    def __init__(self, engine: Engine, scales: Mapping[tuple[str, ...], float], seed: int = 0) -> None:
        super().__init__(engine)
        for labels, scale in scales.items():
            if len(labels) < 2:
                raise InvalidInput("scales", labels, "two labels or more")
            if not 0 <= scale < math.inf:
                raise InvalidInput("scales", scale, "0 or more, for each tuple of labels")
        self._scales, self._seed = dict(scales), seed

    async def send(self, request: Request) -> Reply:
        """Sends the request, and adds noise to the reply about labels that have a scale."""
        reply = await super().send(request)
        if not isinstance(request, LabelRequest) or not self._scales.get(request.labels):
            return reply
        probs = request.answer(reply)
        draws = [standard_normal(self._seed, prompt) for prompt in request.prompts]
        return request.read(replace(probs, p=tilted(probs.p, self._scales[request.labels], draws)))

    async def info(self) -> EngineInfo:
        """Returns what the wrapped engine is, under a fingerprint of its own."""
        info = await super().info()
        scales = ", ".join(f"{'/'.join(labels)} {scale:.4g}" for labels, scale in self._scales.items())
        return replace(info, fingerprint=f"{info.fingerprint}+noise({scales}, seed {self._seed})")


def tilted(p: ArrayLike, scale: float, draws: ArrayLike) -> NDArray[np.float64]:
    """Returns the probabilities `(prompts, labels)` with noise of that scale, one draw a prompt, on their log-odds."""
    given = np.asarray(p, dtype=np.float64)
    if not given.size:
        return given
    logs = np.log(np.maximum(given, _LEAST))
    logs += scale * np.asarray(draws, dtype=np.float64)[:, None] * np.linspace(0.5, -0.5, given.shape[-1])
    weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray(given.sum(axis=-1, keepdims=True) * weights / weights.sum(axis=-1, keepdims=True))


def standard_normal(seed: int, prompt: Prompt) -> float:
    """Returns a draw from the standard normal distribution that depends on the seed and the prompt alone."""
    text = "\0".join([str(seed), *(part for message in prompt.messages for part in message)])
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return random.Random(int.from_bytes(digest)).gauss(0.0, 1.0)
