"""Estimates the belief in each context of a run: from drawn answers, with its error, or by how probable the
reader finds the reference as its answer.

A likelihood takes one prompt for each context and reference, draws nothing and compares nothing. Its scores stand
beside those of sampling and are never averaged with them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from ragguard.errors import RagguardError
from ragguard.metrics.answers import likelihood, likelihood_total, mean_logprob
from ragguard.metrics.arrays import Booleans, Floats, Integers
from ragguard.metrics.belief import (
    cluster,
    kernel,
    sample_weights,
    semantic_entropy,
    seper_hard,
    seper_soft,
    seper_stderr,
)
from ragguard.records import CUT_TOKENS, Usage
from ragguard.scorers.contexts import BeliefContext, Change, Key
from ragguard.scorers.meanings import Meanings
from ragguard.scorers.probes import likelihood as asked_likelihood
from ragguard.scorers.question import Ask, SampleAnswer, TextAnswer, answered
from ragguard.scorers.view import View

Weights = Literal["mean", "sum", "count"]
Kernel = Literal["max", "forward"]
OverReferences = Literal["best", "mean"]


class Estimate(NamedTuple):
    """A number and its standard error."""

    value: float
    stderr: float


@dataclass(frozen=True, slots=True)
class BeliefIn:
    """The reader's belief in one context; None in the place of a number that was not estimated."""

    usage: Usage
    metadata: Mapping[str, Any]
    soft: Estimate | None = None
    """The belief in the reference by how far each answer entails it."""
    hard: Estimate | None = None
    """The belief in the reference by meanings, each of which is the reference or is not."""
    entropy: Estimate | None = None
    per_token: Estimate | None = None
    """The likelihood of the references, as of the next three: nothing is drawn, so that no number has an error."""
    total: Estimate | None = None
    mean_logprob: Estimate | None = None


@dataclass(frozen=True, slots=True)
class Estimator:
    """The settings by which beliefs are estimated from answers."""

    weights: Weights = "mean"
    kernel: Kernel = "max"
    over_references: OverReferences = "best"

    async def beliefs(
        self,
        drawn: Mapping[Key, SampleAnswer | RagguardError],
        references: tuple[str, ...],
        meanings: Meanings,
    ) -> dict[Key, BeliefIn | RagguardError]:
        """Returns the belief in each context, or the error for which there is none."""
        found: dict[Key, BeliefIn | RagguardError] = {}
        targets = tuple(dict.fromkeys(map(meanings.words, references)))
        texts: dict[Key, list[str]] = {}
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
        await meanings.compare_across(
            dict(zip(answers, ids, strict=True))
            for answers, ids in zip(texts.values(), clusters, strict=True)
            if not isinstance(ids, RagguardError)
        )
        for (key, answers), ids in zip(texts.items(), clusters, strict=True):
            try:
                found[key] = self._belief(answered(drawn[key]), answers, answered(ids), targets, meanings)
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
        soft = self._soft(weights, answers, targets, meanings) if targets else None
        matches = np.array(
            [[meanings.matches(words, target) for target in targets] for words in answers], dtype=bool
        )
        entropy, redrawn = self._errors(weights, _equivalent(answers, ids, meanings), matches)
        cut = meanings.cut(answers)
        return BeliefIn(
            drawn.usage + meanings.cost(answers),
            {
                "samples": len(answers),
                "meanings": int(clusters.max()) + 1,
                "weights": scheme,
                **({CUT_TOKENS: drawn.truncated} if drawn.truncated else {}),
                **({"cut_answer_tokens": cut} if cut else {}),
            },
            soft,
            self._hard(weights, clusters, matches, redrawn) if targets else None,
            entropy=Estimate(float(semantic_entropy(weights, clusters)), entropy),
        )

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

    def _hard(self, weights: Floats, clusters: Integers, matches: Booleans, redrawn: float) -> Estimate:
        """Returns the weight of the clusters that match a reference. `matches[i, a]`: the cluster whose first answer is
        i means reference a."""
        of_meaning = matches[_firsts(clusters[None])[0]]
        each = of_meaning[clusters]
        # By meanings, several references count as one where any will do.
        each = each.any(axis=1, keepdims=True) if self._over == "any" else each
        fixed = float(seper_stderr(weights, each.astype(np.float64), answers="mean"))
        return Estimate(float(seper_hard(weights, clusters, of_meaning, self._over)), max(fixed, redrawn))

    @property
    def _over(self) -> str:
        return "any" if self.over_references == "best" else "mean"

    def _errors(self, weights: Floats, equivalent: Booleans, matches: Booleans) -> tuple[float, float]:
        """Returns the bootstrap standard errors, over the samples, of semantic entropy and of the belief by meanings;
        the latter is nan without references.

        The samples of each draw are clustered anew, since another first answer may make other meanings. They include
        one pseudo-sample of another meaning, since ten equal answers are no certainty.
        """
        n, draws = len(weights), 1000
        weight = np.append(weights, weights.mean())
        same = np.eye(n + 1, dtype=bool)
        same[:n, :n] = equivalent
        drawn = np.random.default_rng(0).integers(0, n + 1, (draws, n))
        # A draw that has only answers without weight is left out.
        drawn = drawn[weight[drawn].sum(axis=1) > 0]
        mass = weight[drawn] / weight[drawn].sum(axis=1, keepdims=True)
        clusters = cluster(same[drawn[:, :, None], drawn[:, None, :]])
        # The draws' variance falls short by the share that a variance over n + 1 samples does.
        short = math.sqrt((n + 1) / n)
        entropy = short * float(np.std(semantic_entropy(mass, clusters)))
        if not matches.size:
            return entropy, math.nan
        means = np.vstack([matches, np.zeros((1, matches.shape[1]), dtype=bool)])
        first = np.take_along_axis(drawn, _firsts(clusters), axis=1)
        return entropy, short * float(np.std(seper_hard(mass, clusters, means[first], self._over)))


def _equivalent(answers: Sequence[str], ids: Sequence[int], meanings: Meanings) -> Booleans:
    """Returns a matrix that is true where two answers mean the same: by their cluster, or by a comparison across
    clusters."""
    table = [
        [a == b or meanings.may_be_equivalent(one, other) for b, other in zip(ids, answers, strict=True)]
        for a, one in zip(ids, answers, strict=True)
    ]
    return np.array(table)


def _firsts(clusters: Integers) -> Integers:
    """Returns, for each row, the position of each cluster's first answer; 0 for cluster numbers that do not occur."""
    numbers = np.arange(int(clusters.max()) + 1)
    return np.asarray(np.argmax(clusters[:, None, :] == numbers[:, None], axis=-1))


def combine(change: Change, estimates: Mapping[Key, Estimate]) -> Estimate:
    """Returns the sum of independent estimates with coefficients, and its standard error."""
    value = sum(coefficient * estimates[key].value for key, coefficient in change.items())
    error = math.hypot(*(coefficient * estimates[key].stderr for key, coefficient in change.items()))
    return Estimate(value, error)


async def likelihoods(
    view: View, contexts: Mapping[Key, BeliefContext], references: Sequence[str], ask: Ask
) -> dict[Key, BeliefIn | RagguardError]:
    """Asks for the likelihood of the references in each context; returns it, or the error for which there is none."""
    questions = [
        asked_likelihood(
            view.setting.prompts, view.run.question, context.passages, text, cut_order=context.cut_order
        )
        for context in contexts.values()
        for text in references
    ]
    answers = await ask(questions)
    size = len(references)
    return {key: _likely(answers[at * size : (at + 1) * size]) for at, key in enumerate(contexts)}


def _likely(answers: list[TextAnswer | RagguardError]) -> BeliefIn | RagguardError:
    try:
        texts = [answered(answer) for answer in answers]
    except RagguardError as error:
        return error
    logprobs = [text.logprobs for text in texts]
    cut = max(text.truncated for text in texts)
    return BeliefIn(
        sum((text.usage for text in texts), Usage()),
        {CUT_TOKENS: cut} if cut else {},
        per_token=Estimate(likelihood(logprobs), 0.0),
        total=Estimate(likelihood_total(logprobs), 0.0),
        mean_logprob=Estimate(mean_logprob(logprobs), 0.0),
    )
