"""Estimates beliefs from drawn answers: one belief, with its error, for each context of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from ragguard.errors import RagguardError
from ragguard.metrics.arrays import Floats, Integers
from ragguard.metrics.belief import (
    kernel,
    sample_weights,
    semantic_entropy,
    seper_hard,
    seper_soft,
    seper_stderr,
)
from ragguard.records import CUT_TOKENS, Usage
from ragguard.scorers.contexts import Change, Key
from ragguard.scorers.meanings import Meanings
from ragguard.scorers.probes.question import SampleAnswer, answered

Weights = Literal["mean", "sum", "count"]
Kernel = Literal["max", "forward"]
OverReferences = Literal["best", "mean"]


class Estimate(NamedTuple):
    """A number and its standard error."""

    value: float
    stderr: float


@dataclass(frozen=True, slots=True)
class BeliefIn:
    """The reader's belief in one context."""

    entropy: Estimate
    soft: Estimate | None
    """The belief in the reference by how far each answer entails it; None without a reference."""
    hard: Estimate | None
    """The belief in the reference by meanings, each of which is the reference or is not."""
    usage: Usage
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Estimator:
    """The settings by which beliefs are estimated from answers."""

    weights: Weights = "mean"
    kernel: Kernel = "max"
    over_references: OverReferences = "best"
    errors: bool = True
    """False where nobody asks for the standard errors of entropies: they take a thousand draws each."""

    async def beliefs(
        self,
        drawn: Mapping[Key, SampleAnswer | RagguardError],
        references: tuple[str, ...],
        meanings: Meanings,
    ) -> dict[Key, BeliefIn | RagguardError]:
        """Returns the belief in each context, or the error for which there is none."""
        texts: dict[Key, list[str]] = {}
        found: dict[Key, BeliefIn | RagguardError] = {}
        targets = tuple(dict.fromkeys(meanings.words(reference) for reference in references))
        for key, answer in drawn.items():
            if isinstance(answer, RagguardError):
                found[key] = answer
            else:
                texts[key] = [meanings.words(sample.text) for sample in answer.samples]
        distinct = dict.fromkeys(text for answers in texts.values() for text in answers)
        wanted = [
            pair for text in distinct for target in targets for pair in ((text, target), (target, text))
        ]
        clusters = await meanings.cluster(list(texts.values()), also=wanted)
        for (key, answers), ids in zip(texts.items(), clusters, strict=True):
            if isinstance(ids, RagguardError):
                found[key] = ids
                continue
            try:
                found[key] = self._belief(answered(drawn[key]), answers, ids, targets, meanings)
            except RagguardError as error:
                found[key] = error
        return found

    def _belief(
        self,
        drawn: SampleAnswer,
        answers: list[str],
        ids: list[int],
        targets: tuple[str, ...],
        meanings: Meanings,
    ) -> BeliefIn:
        shown = all(sample.logprobs for sample in drawn.samples)
        scheme: Weights = self.weights if shown else "count"
        weights = sample_weights([sample.logprobs if shown else (0.0,) for sample in drawn.samples], scheme)
        clusters = np.array(ids, dtype=np.intp)
        error = _entropy_stderr(weights, clusters) if self.errors else math.nan
        entropy = Estimate(float(semantic_entropy(weights, clusters)), error)
        soft = hard = None
        if targets:
            soft = self._soft(weights, answers, targets, meanings)
            hard = self._hard(weights, clusters, answers, targets, meanings)
        metadata: dict[str, Any] = {
            "samples": len(answers),
            "meanings": int(clusters.max()) + 1,
            "weights": scheme,
        }
        if drawn.truncated:
            metadata[CUT_TOKENS] = drawn.truncated
        if cut := meanings.cut(answers):
            metadata["cut_answer_tokens"] = cut
        return BeliefIn(entropy, soft, hard, drawn.usage + meanings.cost(answers), metadata=metadata)

    def _soft(
        self, weights: Floats, answers: list[str], targets: tuple[str, ...], meanings: Meanings
    ) -> Estimate:
        there = np.array([[meanings.entailment(a, t)[0] for t in targets] for a in answers])
        back = np.array([[meanings.entailment(t, a)[0] for t in targets] for a in answers])
        means = kernel(there, back, self.kernel)
        over = "max" if self.over_references == "best" else "mean"
        return Estimate(
            float(seper_soft(weights, means, over)), float(seper_stderr(weights, means, answers=over))
        )

    def _hard(
        self,
        weights: Floats,
        clusters: Integers,
        answers: list[str],
        targets: tuple[str, ...],
        meanings: Meanings,
    ) -> Estimate:
        first = [answers[int(np.argmax(clusters == number))] for number in range(int(clusters.max()) + 1)]
        matches = np.array([[meanings.matches(words, target) for target in targets] for words in first])
        over = "any" if self.over_references == "best" else "mean"
        # By meanings, several references count as one where any will do.
        each = matches[clusters].any(axis=1, keepdims=True) if over == "any" else matches[clusters]
        error = float(seper_stderr(weights, each.astype(np.float64), answers="mean"))
        return Estimate(float(seper_hard(weights, clusters, matches, over)), error)


def _entropy_stderr(weights: Floats, clusters: Integers) -> float:
    """Returns the bootstrap standard error of `semantic_entropy` over its samples.

    The samples include one pseudo-sample of another meaning, since ten equal answers are no certainty.
    """
    n, draws = len(weights), 1000
    weight = np.append(weights, weights.mean())
    meaning = np.eye(int(clusters.max()) + 2)[np.append(clusters, clusters.max() + 1)]
    drawn = np.random.default_rng(0).integers(0, n + 1, (draws, n))
    times = np.zeros((draws, n + 1))
    np.add.at(times, (np.arange(draws)[:, None], drawn), 1.0)
    mass = (times * weight) @ meaning
    # A draw that has only answers without weight is left out.
    mass = mass[mass.sum(axis=1) > 0]
    mass /= mass.sum(axis=1, keepdims=True)
    entropies = -(mass * np.log(np.where(mass > 0, mass, 1))).sum(axis=1)
    return float(entropies.std())


def combine(change: Change, estimates: Mapping[Key, Estimate]) -> Estimate:
    """Returns the sum of independent estimates with coefficients, and its standard error."""
    value = sum(coefficient * estimates[key].value for key, coefficient in change.items())
    error = math.hypot(*(coefficient * estimates[key].stderr for key, coefficient in change.items()))
    return Estimate(value, error)
