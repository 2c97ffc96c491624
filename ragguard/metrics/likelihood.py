"""Belief by likelihood: how probable a model finds a reference as its answer, from the log-probabilities of its tokens.

`likelihood` is per token, so that long and short references are comparable; `likelihood_total` is the probability of
the whole text. One prefill gives both, where SePer needs sampled answers and an entailer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ragguard.errors import InvalidInput
from ragguard.metrics import arrays
from ragguard.metrics.registry import Metric, declare

SOURCE = "IGPO, TRACE: the log-probability of the answer"


def likelihood(logprobs: Sequence[ArrayLike]) -> float:
    """Returns exp of the mean log-probability of a reference's tokens, of the best reference; nan for none."""
    return max((math.exp(_mean(one)) for one in _each(logprobs)), default=math.nan)


def likelihood_total(logprobs: Sequence[ArrayLike]) -> float:
    """Returns the sum of the probabilities of the references, each the product over its tokens; nan for none."""
    totals = [math.exp(float(np.sum(_read(one)))) for one in _each(logprobs)]
    return min(1.0, sum(totals)) if totals else math.nan


def mean_logprob(logprobs: Sequence[ArrayLike]) -> float:
    """Returns the mean log-probability of a token of the best reference; nan for none."""
    return max((_mean(one) for one in _each(logprobs)), default=math.nan)


def query_gain(given: ArrayLike, alone: ArrayLike) -> float:
    """Returns how much a passage raises the mean log-probability of a query's tokens: `given` it, less `alone`."""
    return _mean(given) - _mean(alone)


def _each(logprobs: Sequence[ArrayLike]) -> list[ArrayLike]:
    """Returns the lists of log-probabilities, one for each reference."""
    if not isinstance(logprobs, list | tuple):
        raise InvalidInput("logprobs", logprobs, "a list of log-probabilities for each reference")
    return list(logprobs)


def _mean(logprobs: ArrayLike) -> float:
    return float(np.mean(_read(logprobs)))


def _read(logprobs: ArrayLike) -> arrays.Floats:
    read = arrays.read("logprobs", logprobs, high=0)
    if read.ndim != 1 or not read.size:
        raise InvalidInput(
            "logprobs", logprobs, "one list of log-probabilities for each reference, none empty"
        )
    return read


declare(
    Metric(
        name="likelihood", title="Likelihood of the reference", range=(0, 1), unit="probability", direction="higher",
        description="How probable the model finds the reference as its answer, per token; the best reference counts.",
        needs="the probabilities of given texts, references (or the run's own answer)", source=SOURCE,
        levels=("step",), function=likelihood,
    ),
    Metric(
        name="likelihood_total", title="Probability of the references", range=(0, 1), unit="probability",
        direction="higher",
        description="How probable the model finds the references as whole texts, all together.",
        needs="the probabilities of given texts, references (or the run's own answer)", source=SOURCE,
        levels=("step",), function=likelihood_total,
    ),
    Metric(
        name="delta_likelihood", title="Δ likelihood of the step", range=(-1, 1), unit="probability",
        direction="higher",
        description="How much this step moved the likelihood, after the steps before; they sum to the run's total.",
        needs="the likelihoods before and after the step", source=SOURCE, levels=("step",), function=likelihood,
    ),
    Metric(
        name="delta_likelihood_alone", title="Δ likelihood alone", range=(-1, 1), unit="probability",
        direction="higher",
        description="How much the step's passages move the likelihood with no other step in the context.",
        needs="the likelihoods without retrieval and with this step alone", source=SOURCE, levels=("step",),
        function=likelihood,
    ),
    Metric(
        name="log_gain", title="Log gain of the step", range=(float("-inf"), float("inf")), unit="nats",
        direction="higher",
        description="How much this step moved the mean log-probability of the reference's tokens.",
        needs="the likelihoods before and after the step", source=SOURCE, levels=("step",), function=mean_logprob,
    ),
    Metric(
        name="likelihood_closed_book", title="Likelihood without retrieval", range=(0, 1), unit="probability",
        direction="neither",
        description="How probable the model found the reference before it read anything, per token.",
        needs="the probabilities of given texts, references (or the run's own answer)", source=SOURCE,
        levels=("run",), function=likelihood,
    ),
    Metric(
        name="delta_likelihood_total", title="Δ likelihood of the run", range=(-1, 1), unit="probability",
        direction="higher", description="How much all retrieval of the run moved the likelihood.",
        needs="the likelihoods without retrieval and with all of it", source=SOURCE, levels=("run",),
        function=likelihood,
    ),
    Metric(
        name="query_gain", title="Query gain of the passage", range=(float("-inf"), float("inf")), unit="nats",
        direction="higher",
        description="How much likelier the passage makes its step's query, per token; repeating the query counts, too.",
        needs="the probabilities of given texts", source="query likelihood (Ponte and Croft, 1998)",
        levels=("passage",), function=query_gain,
    ),
)  # fmt: skip
