"""Estimates the belief in each context of a run: from drawn answers, with its error, or by how probable the
reader finds the reference as its answer.

A likelihood takes one prompt for each context and reference, draws nothing and compares nothing. Its scores stand
beside those of sampling and are never averaged with them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

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
from ragguard.records import CUT_TOKENS
from ragguard.scorers.contexts import BeliefContext, Change, Key
from ragguard.scorers.meanings import Meanings
from ragguard.scorers.probes import likelihood as asked_likelihood
from ragguard.scorers.question import Ask, SampleAnswer, TextAnswer, answered
from ragguard.scorers.view import View

Weights = Literal["mean", "sum", "count"]
Kernel = Literal["max", "forward"]
OverReferences = Literal["best", "mean"]
Kind = Literal["soft", "hard", "entropy", "per_token", "total", "mean_logprob"]
"""A number about a context. `soft`: the belief in the reference by how far each answer entails it; `hard`: by meanings,
each of which is the reference or is not; `entropy`: that over the meanings. The others are the likelihood of the
references, for which nothing is drawn, so that they have no error."""


class Estimate(NamedTuple):
    """A number and its standard error."""

    value: float
    stderr: float = 0.0


class BeliefIn(NamedTuple):
    """The reader's belief in one context: those numbers that were estimated, and facts about how."""

    estimates: Mapping[Kind, Estimate]
    metadata: Mapping[str, Any]


Beliefs: TypeAlias = dict[Key, BeliefIn | RagguardError]
"""The belief in each context, or the error for which there is none."""


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
    ) -> Beliefs:
        """Returns the belief in each context by the answers that were drawn there."""
        targets = tuple(dict.fromkeys(map(meanings.words, references)))
        texts = {
            key: [meanings.words(sample.text) for sample in answer.samples]
            for key, answer in drawn.items()
            if isinstance(answer, SampleAnswer)
        }
        distinct = dict.fromkeys(text for answers in texts.values() for text in answers)
        wanted = [
            pair for text in distinct for target in targets for pair in ((text, target), (target, text))
        ]
        clusters = dict(zip(texts, await meanings.cluster(list(texts.values()), also=wanted), strict=True))
        await meanings.compare_across(
            dict(zip(texts[key], ids, strict=True))
            for key, ids in clusters.items()
            if not isinstance(ids, RagguardError)
        )
        found: Beliefs = {}
        for key, answer in drawn.items():
            try:
                samples = answered(answer)
                found[key] = self._belief(samples, texts[key], answered(clusters[key]), targets, meanings)
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
        same = [
            [a == b or meanings.may_be_equivalent(one, other) for b, other in zip(ids, answers, strict=True)]
            for a, one in zip(ids, answers, strict=True)
        ]
        matches = np.array(
            [[meanings.matches(words, target) for target in targets] for words in answers], dtype=bool
        )
        of_entropy, of_hard = self._errors(weights, np.array(same), matches)
        found: dict[Kind, Estimate] = {
            "entropy": Estimate(float(semantic_entropy(weights, clusters)), of_entropy)
        }
        if targets:
            found["soft"] = self._soft(weights, answers, targets, meanings)
            found["hard"] = self._hard(weights, clusters, matches, of_hard)
        facts = {"samples": len(answers), "meanings": int(clusters.max()) + 1, "weights": scheme}
        cut = {CUT_TOKENS: drawn.truncated, "cut_answer_tokens": meanings.cut(answers)}
        return BeliefIn(found, facts | {name: tokens for name, tokens in cut.items() if tokens})

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
) -> Beliefs:
    """Asks for the likelihood of the references in each context."""
    prompts, question = view.setting.prompts, view.run.question
    questions = [
        asked_likelihood(prompts, question, context.passages, text, cut_order=context.cut_order)
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
    found: dict[Kind, Estimate] = {
        "per_token": Estimate(likelihood(logprobs)),
        "total": Estimate(likelihood_total(logprobs)),
        "mean_logprob": Estimate(mean_logprob(logprobs)),
    }
    return BeliefIn(found, {CUT_TOKENS: cut} if cut else {})
