"""Estimates the belief in each context of a run: from sampled answers and their meanings, with its error, or by how
probable the reader finds the reference as its answer.

Which answers mean the same, and which mean a reference, is found with as few comparisons as possible. Answers of the
same words are never compared. Each pair is compared once in a run. Within a context an answer is compared with the
first answer of each meaning only. A likelihood takes one prompt for each context and reference, draws nothing and
compares nothing. Its scores stand beside those of sampling and are never averaged with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ragguard.engines.base import Sample
from ragguard.engines.entailment import Pair
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
from ragguard.scorers.probes import check_mass
from ragguard.scorers.probes import likelihood as asked_likelihood
from ragguard.scorers.question import Ask, EntailAnswer, EntailQuestion, SampleAnswer, TextAnswer, answered
from ragguard.scorers.view import View
from ragguard.text.language import ENGLISH, Language, meaning_key, normalise
from ragguard.text.statements.abstention import is_abstention

Equivalence = Literal["threshold", "strict"]
Match = Literal["loose", "bi"]
_ENTAILS, _NEUTRAL, _CONTRADICTS = range(3)
_NOTHING = ""


@dataclass(slots=True)
class Meanings:
    """The meanings of answers to one question, as far as they were compared."""

    question: str
    ask: Ask
    language: Language = ENGLISH
    equivalence: Equivalence = "threshold"
    match: Match = "loose"
    tau: float = 0.5
    _known: dict[Pair, EntailAnswer | RagguardError] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)
    _words: dict[str, str] = field(default_factory=dict)

    def words(self, answer: str) -> str:
        """Returns the text by which an answer is compared: the first answer seen of the same words; "" for an
        abstention."""
        if answer not in self._texts:
            nothing = not answer.strip() or is_abstention(answer, self.language)
            key = meaning_key(answer, self.language)
            self._texts[answer] = _NOTHING if nothing else self._words.setdefault(key, answer.strip())
        return self._texts[answer]

    async def learn(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Asks whether the second of two `words` follows from the first, where that is not known yet."""
        differing = (words for words in pairs if words[0] != words[1] and _NOTHING not in words)
        asked = dict.fromkeys(Pair(self.question, *words) for words in differing)
        wanted = [pair for pair in asked if pair not in self._known]
        answers = await self.ask([EntailQuestion(pair) for pair in wanted])
        self._known.update(zip(wanted, answers, strict=True))

    def entailment(self, premise: str, hypothesis: str) -> tuple[float, float, float]:
        """Returns (entailment, neutral, contradiction) of two `words`; raises the error for which it is not known."""
        if premise == hypothesis:
            return 1.0, 0.0, 0.0
        if _NOTHING in (premise, hypothesis):
            return 0.0, 1.0, 0.0
        pair = Pair(self.question, premise, hypothesis)
        return relation(answered(self._known[pair]))

    def follows(self, one: str, other: str) -> bool:
        """Returns whether the second of two `words` follows from the first; every answer follows from itself."""
        if one == other:
            return True
        p = self.entailment(one, other)
        return _verdict(p) == _ENTAILS if self.equivalence == "strict" else p[_ENTAILS] >= self.tau

    def equivalent(self, one: str, other: str) -> bool:
        """Returns whether two `words` follow from each other. Where one does not follow, the other direction need not
        be known."""
        return self.follows(one, other) and self.follows(other, one)

    def matches(self, words: str, reference: str) -> bool:
        """Returns whether a meaning, given by its first answer, is the meaning of the reference."""
        if self.match == "bi":
            return self.equivalent(words, reference)
        verdicts = _verdict(self.entailment(words, reference)), _verdict(self.entailment(reference, words))
        return _CONTRADICTS not in verdicts and verdicts != (_NEUTRAL, _NEUTRAL)

    async def cluster(
        self, contexts: Sequence[Sequence[str]], also: Iterable[tuple[str, str]] = ()
    ) -> list[list[int] | RagguardError]:
        """Returns the number of its meaning for each answer (`words`) of each context, by greedy first match.

        All contexts are compared in the same waves, one first answer of a meaning at a time; then the others of
        different meanings, since which meanings there are may depend on which answer came first. `also` are further
        pairs that are compared in the first wave.
        """
        waiting: list[list[str]] = [list(dict.fromkeys(answers)) for answers in contexts]
        meaning: list[dict[str, int]] = [{} for _ in contexts]
        failed: dict[int, RagguardError] = {}
        number = 0
        further = [*also]
        while any(waiting):
            firsts = [(answers[0], other) for answers in waiting for other in answers[1:]]
            await self._learn_both([*further, *firsts])
            further = []
            for index, answers in enumerate(waiting):
                try:
                    joined = [words for words in answers if self.equivalent(answers[0], words)]
                except RagguardError as error:
                    failed[index] = error
                    joined = answers
                meaning[index].update(dict.fromkeys(joined, number))
                waiting[index] = [words for words in answers if words not in meaning[index]]
            number += 1
        apart = [
            (one, other)
            for index, answers in enumerate(contexts)
            for one, other in combinations(dict.fromkeys(answers), 2)
            if index not in failed and meaning[index][one] != meaning[index][other]
        ]
        await self._learn_both(apart)
        return [
            failed.get(index) or [meaning[index][words] for words in answers]
            for index, answers in enumerate(contexts)
        ]

    async def _learn_both(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Asks whether the second of two `words` follows from the first; where it does, also the other way round."""
        await self.learn(pairs)
        await self.learn((other, one) for one, other in pairs if self._may_follow(one, other))

    def may_be_equivalent(self, one: str, other: str) -> bool:
        """Returns whether two `words` follow from each other; False where that is not known."""
        return self._may_follow(one, other) and self._may_follow(other, one)

    def _may_follow(self, one: str, other: str) -> bool:
        try:
            return self.follows(one, other)
        except (RagguardError, KeyError):
            return False


def relation(answer: EntailAnswer) -> tuple[float, float, float]:
    """Returns (entailment, neutral, contradiction); raises LowLabelMass where a model puts little on these labels."""
    who = "the model that compares answers is asked for its relations and"
    check_mass(answer.mass, who, "give RagGuard an `entailer`")
    return answer.p


def _verdict(p: tuple[float, float, float]) -> int:
    return max(range(3), key=p.__getitem__)


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
    ended: bool = True
    """False if the engine does not tell how probable the answer's end is: the total is then an upper bound."""


Beliefs: TypeAlias = dict[Key, BeliefIn | RagguardError]
"""The belief in each context, or the error for which there is none."""


@dataclass(frozen=True, slots=True)
class Estimator:
    """The settings by which beliefs are estimated from answers."""

    weights: Weights = "mean"
    kernel: Kernel = "max"
    over_references: OverReferences = "best"
    first: int = 0
    """How many answers were drawn at first, if more were drawn only where a reference is among these beside others; a
    reference by which they are not mixed is then estimated from these, so that another reference lowers no belief. 0:
    all were drawn at once."""
    most: float = 1.0
    """The largest belief that answers may show: where likelihood has shown less, what it would show from there on."""

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
            there = np.array([[meanings.entailment(a, t)[0] for t in targets] for a in answers])
            back = np.array([[meanings.entailment(t, a)[0] for t in targets] for a in answers])
            means = kernel(there, back, self.kernel)
            sizes = np.array([self._size(drawn, target, meanings.language) for target in targets])
            parts = [
                (size, means[:size, sizes == size], matches[:size, sizes == size])
                for size in np.unique(sizes).tolist()
            ]
            over = "max" if self.over_references == "best" else "mean"
            soft, hard = [], []
            for size, some, matching in parts:
                weight = weights[:size] / weights[:size].sum()
                error = float(seper_stderr(weight, some, answers=over))
                soft.append(Estimate(float(seper_soft(weight, some, over)), error))
                hard.append(self._hard(weight, clusters[:size], matching, of_hard))
            found["soft"], found["hard"] = (
                Estimate(min(best.value, self.most), best.stderr) for best in (max(soft), max(hard))
            )
        facts = {"samples": len(answers), "meanings": int(clusters.max()) + 1, "weights": scheme}
        return BeliefIn(found, facts | ({CUT_TOKENS: drawn.truncated} if drawn.truncated else {}))

    def _size(self, drawn: SampleAnswer, target: str, language: Language) -> int:
        """Returns how many of the answers, in their order, tell of a reference: those drawn at first, if it is all of
        them or none of them word for word, else all."""
        first = drawn.samples[: self.first]
        return len(first) if first and not is_mixed(first, [target], language) else len(drawn.samples)

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


def is_mixed(samples: Sequence[Sample], references: Sequence[str], language: Language = ENGLISH) -> bool:
    """Returns whether some answers are one of the references, word for word, and some are not."""
    wanted = {normalise(reference, language) for reference in references}
    return len({normalise(sample.text, language) in wanted for sample in samples}) > 1


def _firsts(clusters: Integers) -> Integers:
    """Returns, for each row, the position of each cluster's first answer; 0 for cluster numbers that do not occur."""
    numbers = np.arange(int(clusters.max()) + 1)
    return np.asarray(np.argmax(clusters[:, None, :] == numbers[:, None], axis=-1))


def combine(change: Change, estimates: Mapping[Key, Estimate]) -> Estimate:
    """Returns the sum of independent estimates with coefficients, and its standard error."""
    value = sum(coefficient * estimates[key].value for key, coefficient in change.items())
    error = math.hypot(*(coefficient * estimates[key].stderr for key, coefficient in change.items()))
    return Estimate(value, error)


def change_between(beliefs: Beliefs, before: Key, after: Key, kind: Kind) -> float:
    """Returns how much a number rises from one context to another; raises the error for which one is not known."""
    return answered(beliefs[after]).estimates[kind].value - answered(beliefs[before]).estimates[kind].value


def in_words(before: float, after: float) -> str:
    """Returns a change of belief as "before → after"."""
    return f"{before:.2f} → {after:.2f}"


async def likelihoods(
    view: View, contexts: Mapping[Key, BeliefContext], references: Sequence[str], ask: Ask
) -> Beliefs:
    """Asks for the likelihood of the references in each context."""
    prompts, question = view.setting.prompts, view.run.question
    references = list(dict.fromkeys(text.strip() for text in references))
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
    logprobs, ends = [text.logprobs for text in texts], [text.end for text in texts]
    cut = max(text.truncated for text in texts)
    found: dict[Kind, Estimate] = {
        "per_token": Estimate(likelihood(logprobs)),
        "total": Estimate(likelihood_total(logprobs, ends)),
        "mean_logprob": Estimate(mean_logprob(logprobs)),
    }
    return BeliefIn(found, {CUT_TOKENS: cut} if cut else {}, ended=None not in ends)
