"""Metrics of what the model believes of the reference answer, from answers that it samples: SePer and others.

The source is Dai et al., "SePer: Measure Retrieval Utility Through The Lens Of Semantic Perplexity
Reduction" (2025). A model answers a question n times; which answers mean the same, and which mean a
reference, is found by entailment elsewhere and comes in as arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ragguard.errors import InvalidInput
from ragguard.metrics import arrays
from ragguard.metrics.arrays import Floats, Integers, Mask, Value
from ragguard.metrics.registry import Metric, declare
from ragguard.runtime.arguments import one_of

SOURCE = "Dai et al. 2025 (SePer)"


def sample_weights(logprobs: Sequence[ArrayLike], scheme: str = "mean") -> Floats:
    """Returns the weight of each sampled answer, ∝ exp(mean log-probability of its tokens); the weights sum to 1.

    "mean" takes the tokens' mean (the published implementation), "sum" their sum (eq. 7), "count" none.
    """
    one_of("scheme", scheme, ("mean", "sum", "count"))
    answers = arrays.items("logprobs", logprobs)
    totals = np.empty(len(answers))
    for i, tokens in enumerate(answers):
        read = arrays.read(f"logprobs[{i}]", tokens, high=0)
        if read.ndim != 1 or not read.size:
            raise InvalidInput(f"logprobs[{i}]", tokens, "one log-probability a token, at least one")
        totals[i] = {"mean": read.mean(), "sum": read.sum(), "count": 0.0}[scheme]
    # The likeliest answer weighs 1 before normalising, so that no sum of exponentials is 0.
    weights: Floats = np.exp(totals - totals.max(initial=-np.inf))
    weights /= weights.sum()
    return weights


def cluster(equivalent: ArrayLike, mask: Mask = None) -> Integers:
    """Returns cluster ids by greedy first match: an answer joins the first cluster whose first member it is equivalent
    to.

    `equivalent[j, i]` says that answers j and i entail each other. Padding gets −1.
    """
    same = arrays.boolean("equivalent", equivalent)
    if same.ndim < 2 or same.shape[-1] != same.shape[-2]:
        raise InvalidInput("equivalent.shape", same.shape, "(n, n), or many of them")
    answers = same.shape[:-1]
    real = np.ones(answers, dtype=bool) if mask is None else arrays.boolean("mask", mask, answers)
    ids = np.full(real.shape, -1, dtype=np.intp)
    represents = np.zeros(real.shape, dtype=bool)
    found = np.zeros(real.shape[:-1], dtype=np.intp)
    for j in range(real.shape[-1]):
        match = same[..., j, :] & represents
        first = match.argmax(axis=-1)
        joined = np.take_along_axis(ids, first[..., None], axis=-1)[..., 0]
        alone = ~match.any(axis=-1) & real[..., j]
        ids[..., j] = np.where(real[..., j], np.where(alone, found, joined), -1)
        represents[..., j] = alone
        found = found + alone
    return ids


def kernel(forward: ArrayLike, backward: ArrayLike, kind: str = "max") -> Value:
    """Returns how far an answer means a reference: the larger entailment of both directions ("max"), or that from
    answer to reference alone ("forward")."""
    one_of("kind", kind, ("max", "forward"))
    there = arrays.read("forward", forward, low=0, high=1, axes=0)
    back = arrays.read("backward", backward, low=0, high=1, axes=0)
    arrays.same(forward=there, backward=back)
    return arrays.plain(np.maximum(there, back) if kind == "max" else there.copy())


def seper_hard(
    weights: ArrayLike, clusters: ArrayLike, matches: ArrayLike, answers: str = "any", mask: Mask = None
) -> Value:
    """Returns the weight of the answers whose cluster means a reference; `matches[c, a]`: cluster c means reference a.

    Of several references "any" lets a cluster count once (the published implementation), "mean" averages (eq. 10).
    """
    one_of("answers", answers, ("any", "mean"))
    weight = _weights(weights, mask)
    ids = _clusters(clusters, weight, mask)
    means = arrays.boolean("matches", matches)
    if means.ndim != weight.ndim + 1 or means.shape[:-2] != weight.shape[:-1]:
        raise InvalidInput("matches.shape", means.shape, "(clusters, references) for each list of weights")
    real = True if mask is None else np.asarray(mask)
    highest = int(ids.max(initial=-1, where=real))
    if highest >= means.shape[-2]:
        raise InvalidInput("clusters", highest, f"a row of matches, which has {means.shape[-2]}")
    # Padding points at row 0, which may not be there, and weighs nothing.
    rows = means if means.shape[-2] else np.zeros((*means.shape[:-2], 1, means.shape[-1]), dtype=bool)
    each = np.take_along_axis(rows, ids[..., None], axis=-2).astype(np.float64)
    return _bounded((weight * _over_references(each, answers)).sum(axis=-1), weight, mask)


def seper_soft(weights: ArrayLike, entailment: ArrayLike, answers: str = "max", mask: Mask = None) -> Value:
    """Returns Σ_i w_i e(i, a), the weighted mean of how far each answer means the reference (eq. 9): `entailment[i,
    a]` from `kernel`.

    Of several references "max" takes the best, "mean" averages (eq. 10).
    """
    one_of("answers", answers, ("max", "mean"))
    weight = _weights(weights, mask)
    means = _entailment(entailment, weight, mask)
    mass = (weight[..., None] * means).sum(axis=-2)
    return _bounded(_over_references(mass, answers), weight, mask)


def semantic_entropy(weights: ArrayLike, clusters: ArrayLike, mask: Mask = None) -> Value:
    """Returns the entropy −Σ_c p_c ln p_c of the meanings c of the sampled answers, in nats; 0 when all mean the
    same."""
    weight = _weights(weights, mask)
    ids = _clusters(clusters, weight, mask)
    width = int(ids.max(initial=0)) + 1
    n = int(np.prod(weight.shape[:-1]))
    flat = ids.reshape(n, ids.shape[-1]) + width * np.arange(n)[:, None]
    mass = np.bincount(flat.ravel(), weight.ravel(), minlength=width * n)
    mass = mass.reshape(*weight.shape[:-1], width)
    # Meanings without weight add nothing; their logarithm is never taken. 0 − 0 rather than −0.
    entropy = 0 - (mass * np.log(np.where(mass > 0, mass, 1))).sum(axis=-1)
    there = np.asarray(arrays.lengths(weight, mask)) > 0
    return arrays.plain(np.where(there, np.maximum(entropy, 0), np.nan))


def attribution(beliefs: ArrayLike, mask: Mask = None) -> Floats:
    """Returns what each step of a run changed, beliefs[t] − beliefs[t − 1]: `beliefs[0]` without retrieval,
    `beliefs[t]` after steps 1..t."""
    known = arrays.read("beliefs", beliefs, low=0, high=1, mask=mask)
    if not known.shape[-1]:
        raise InvalidInput("beliefs", beliefs, "at least the belief without retrieval")
    changes = np.diff(known, axis=-1)
    if mask is None:
        return changes
    real = np.asarray(mask)
    return np.where(real[..., 1:] & real[..., :-1], changes, np.nan)


declare(
    Metric(
        "seper_hard", "Belief, by clusters", "The same belief, counting only meanings that match the reference.",
        unit="probability", needs="sampled answers, entailment, references (or the run's own answer)",
        source=f"{SOURCE}, eq. 6 and 8", levels=("step",), function=seper_hard,
    ),
    Metric(
        "seper", "Belief in the reference",
        "How much of the model's belief lies on the reference answer, in this context.", unit="probability",
        needs="sampled answers, entailment, references (or the run's own answer)", source=f"{SOURCE}, eq. 9",
        levels=("step",), function=seper_soft,
    ),
    Metric(
        "semantic_entropy", "Semantic entropy",
        "How many meanings the sampled answers have; at most ln n for n answers, too low for many meanings.",
        range=(0, float("inf")), direction="lower", unit="nats", needs="sampled answers, entailment",
        source=f"{SOURCE}, eq. 5", levels=("step",), function=semantic_entropy,
    ),
    Metric(
        "delta_seper", "ΔSePer of the step",
        "How much this step moved the belief, after the steps before it; a run's steps sum to its total.",
        range=(-1, 1), unit="probability", needs="the beliefs before and after the step", source=f"{SOURCE}, eq. 11",
        levels=("step",), function=attribution,
    ),
    Metric(
        "delta_seper_alone", "ΔSePer alone",
        "How much the step's passages move the belief with no other step in the context.", range=(-1, 1),
        unit="probability", needs="the beliefs without retrieval and with only this step", source=f"{SOURCE}, eq. 11",
        levels=("step",), function=attribution,
    ),
    Metric(
        "delta_seper_selection", "ΔSePer of the selection",
        "SePer after the step minus SePer with all candidates: the cost of the selection.", range=(-1, 1),
        unit="probability",
        needs="a step of which the model got other passages than its candidates, and both beliefs",
        source="ragguard, by the SePer of Dai et al. 2025", levels=("step",), function=attribution,
    ),
    Metric(
        "delta_seper_total", "ΔSePer of the run", "How much all retrieval of the run moved the belief.", range=(-1, 1),
        unit="probability", needs="the beliefs without retrieval and with all of it", source=f"{SOURCE}, eq. 11",
        levels=("run",), function=attribution,
    ),
    Metric(
        "seper_closed_book", "Belief without retrieval",
        "How much the model believed the reference before it read anything.", direction="neither", unit="probability",
        needs="sampled answers, entailment, references (or the run's own answer)", source=f"{SOURCE}, eq. 9",
        levels=("run",), function=seper_soft,
    ),
    Metric(
        "delta_semantic_entropy", "Gain in sureness",
        "Semantic entropy before minus after: positive if the step made the model surer, right or wrong.",
        range=(float("-inf"), float("inf")), unit="nats", needs="sampled answers before and after the step, entailment",
        source=SOURCE, levels=("step",), function=semantic_entropy,
    ),
)  # fmt: skip


def seper_stderr(
    weights: ArrayLike,
    entailment: ArrayLike,
    draws: int = 1000,
    seed: int = 0,
    answers: str = "max",
    mask: Mask = None,
) -> Value:
    """Returns the bootstrap standard error of `seper_soft` over its samples, weights renormalised in each draw.

    It is never under the error with two pseudo-samples added, one that means the reference and one that
    does not: ten equal answers are not certainty.
    """
    one_of("answers", answers, ("max", "mean"))
    arrays.count("draws", draws, 2, arrays.MOST_DRAWS)
    weight = _weights(weights, mask)
    means = _entailment(entailment, weight, mask)
    size = np.broadcast_to(arrays.lengths(weight, mask), weight.shape[:-1])
    weight = arrays.front(weight, mask)
    means = arrays.front(means, mask, axis=-2)
    *queries, n, references = means.shape
    rows = int(np.prod(queries))
    flat = weight.reshape(rows, n)
    table = means.reshape(rows, n, references)
    sizes = size.reshape(rows)
    # One row of numbers a sample: a shorter list uses the first rows, so padding changes no draw.
    uniform = np.random.default_rng(arrays.count("seed", seed, 0)).random((n, draws))
    errors = np.empty(rows)
    for some in arrays.blocks(rows, n * draws):
        one = flat[some], table[some], sizes[some], answers
        errors[some] = np.maximum(_bootstrap_error(*one, uniform), _smoothed_error(*one))
    return arrays.plain(errors.reshape(queries))


def _bootstrap_error(weight: Floats, means: Floats, sizes: Integers, answers: str, uniform: Floats) -> Floats:
    """Returns the standard deviation of the value over the draws; nan where there is no answer."""
    n, draws = uniform.shape
    drawn = (uniform * sizes[:, None, None]).astype(np.intp)
    flat = (np.arange(len(sizes))[:, None, None] * draws + np.arange(draws)) * n + drawn
    counts = np.broadcast_to(np.arange(n)[:, None] < sizes[:, None, None], flat.shape)
    times = np.bincount(flat.ravel(), counts.ravel(), minlength=len(sizes) * draws * n)
    times = times.reshape(len(sizes), draws, n)
    total = times @ weight[..., None]
    mass = np.asarray(arrays.ratio(times @ (weight[..., None] * means), total))
    # A draw of answers without weight is nan: it says nothing and is left out.
    drawn_in = total[..., 0] > 0
    values = np.where(drawn_in, _over_references(mass, answers), 0.0)
    used = np.count_nonzero(drawn_in, axis=-1)
    mean = np.asarray(arrays.ratio(values.sum(axis=-1), used))
    deviations = np.where(drawn_in, values - mean[:, None], 0.0)
    return np.asarray(np.sqrt(arrays.ratio((deviations**2).sum(axis=-1), used)))


def _smoothed_error(weight: Floats, means: Floats, sizes: Integers, answers: str) -> Floats:
    """Returns the error that two pseudo-samples leave, of weight 1 / (n + 2) each, for the reference that counts."""
    if answers == "mean":
        each = _over_references(means, "mean")
    else:
        mass = (weight[..., None] * means).sum(axis=-2)
        each = np.take_along_axis(means, mass.argmax(axis=-1)[:, None, None], axis=-1)[..., 0]
    pseudo = 1 / (sizes + 2)
    share = weight * (sizes * pseudo)[:, None]
    value = (share * each).sum(axis=-1) + pseudo
    known = (share**2 * (each - value[:, None]) ** 2).sum(axis=-1)
    return np.asarray(np.sqrt(known + pseudo**2 * (value**2 + (1 - value) ** 2)))


def _weights(weights: ArrayLike, mask: Mask) -> Floats:
    read = arrays.read("weights", weights, low=0, high=1, mask=mask)
    total = read.sum(axis=-1)
    if np.any((np.abs(total - 1) > 1e-6) & (np.asarray(arrays.lengths(read, mask)) > 0)):
        raise InvalidInput("weights", weights, "weights that sum to 1")
    return read


def _clusters(clusters: ArrayLike, weight: Floats, mask: Mask) -> Integers:
    read = arrays.read("clusters", clusters, low=0, high=1 << 31, mask=mask)
    arrays.same(weights=weight, clusters=read)
    return arrays.whole("clusters", read, "cluster ids: 0, 1, 2 …")


def _entailment(entailment: ArrayLike, weight: Floats, mask: Mask) -> Floats:
    read = arrays.read("entailment", entailment, low=0, high=1, axes=2, mask=mask)
    if read.shape[:-1] != weight.shape:
        raise InvalidInput(
            "entailment.shape", read.shape, f"{weight.shape} as weights has, and the references"
        )
    return read


def _over_references(values: Floats, how: str) -> Floats:
    """Returns the best ("any", "max") or the mean over the references; nan where there is none."""
    if not values.shape[-1]:
        return np.full(values.shape[:-1], np.nan)
    return np.asarray(values.mean(axis=-1) if how == "mean" else values.max(axis=-1))


def _bounded(value: Floats, weight: Floats, mask: Mask) -> Value:
    """Returns the value clipped to [0, 1], since sums of weights are rounded; nan where there is no answer."""
    there = np.asarray(arrays.lengths(weight, mask)) > 0
    return arrays.plain(np.where(there, np.clip(value, 0, 1), np.nan))
