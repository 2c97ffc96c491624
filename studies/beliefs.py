"""A reader's sampled answers to a question in several contexts, and its belief in the references.

The answers become beliefs as in every run (`ragguard.scorers`); simpler measures of the same answers stand beside them.
The module knows no label: a study itself knows the worth of its contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ragguard.engines.base import Engine, Sample
from ragguard.engines.entailer import EngineEntailer
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.errors import RagguardError
from ragguard.lab.validation.contexts import Progress, silent
from ragguard.metrics import exact_match, rouge_l, sample_weights, seper_hard, seper_soft, token_f1
from ragguard.metrics.arrays import Floats
from ragguard.metrics.belief import kernel
from ragguard.scorers.asker import Asker, Models
from ragguard.scorers.contexts import CLOSED_BOOK, Key
from ragguard.scorers.estimates import Estimator, Meanings
from ragguard.scorers.probes import belief, read_rating, read_relevance, relevance, response_grade
from ragguard.scorers.question import SampleAnswer, answered
from studies.overlap import bleu, matched

ABOUT = 48
"""The number of questions that are worked on together."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, its right answers, and the contexts it is asked in; it is asked without one, too."""

    question: str
    references: tuple[str, ...]
    contexts: tuple[Key, ...]
    repeats: int = 1
    """The number of times that everything is drawn."""


@dataclass(frozen=True, slots=True)
class Believed:
    """The answers that were drawn in one context, with all that was measured about them."""

    measures: dict[str, float]
    """The measures of the first draw's first answers, by name."""
    soft: Floats
    """The belief from the first 1, 2, … answers: (repeats, draws)."""
    hard: Floats


@dataclass(frozen=True, slots=True)
class Beliefs:
    """A reader that is asked, and a judge that compares the meanings of its answers."""

    engine: Engine
    judge: Engine
    samples: int = 10
    """The number of answers that a belief is made of."""
    draws: int = 20
    """The number of answers that are drawn to see what another number of samples would give."""
    seed: int = 0
    progress: Progress = silent

    async def of(self, questions: Sequence[Asked]) -> list[dict[Key, Believed]]:
        """Returns, for each question, the belief without a context (`CLOSED_BOOK`) and in each context."""
        prompts = load_prompts((await self.engine.info()).prompts)
        judging = load_prompts((await self.judge.info()).prompts)
        entailer = EngineEntailer(self.judge, judging)
        found: list[dict[Key, Believed]] = []
        for start in range(0, len(questions), ABOUT):
            self.progress("drawing and comparing answers", start, len(questions))
            # An asker keeps what was answered: one for each batch bounds the memory.
            # None waits for anything but answers, so all go together: the same questions share a batch every time.
            asker = Asker(Models(self.engine, self.judge, entailer))
            batch = questions[start : start + ABOUT]
            found += await asker.attend(
                [partial(self._one, asked, asker, prompts, judging) for asked in batch]
            )
        self.progress("drawing and comparing answers", len(questions), len(questions))
        return found

    async def _one(
        self, asked: Asked, ask: Asker, prompts: PromptSet, judging: PromptSet
    ) -> dict[Key, Believed]:
        contexts = list(dict.fromkeys((CLOSED_BOOK, *asked.contexts)))
        questions = [
            belief(prompts, asked.question, context, n=self.draws, seed=self.seed + repeat)
            for context in contexts
            for repeat in range(asked.repeats)
        ]
        drawn = [answered(answer).samples for answer in await ask(questions)]
        series = {
            context: drawn[at * asked.repeats : (at + 1) * asked.repeats]
            for at, context in enumerate(contexts)
        }
        firsts = {context: SampleAnswer(tuple(series[context][0][: self.samples])) for context in contexts}
        meanings = Meanings(asked.question, ask)
        believed = await Estimator().beliefs(firsts, asked.references, meanings)
        # A measure by votes, which weighs all answers alike, shows the effect of the weights; it asks no prompt.
        alike = await Estimator(weights="count").beliefs(firsts, asked.references, meanings)
        targets = list(dict.fromkeys(meanings.words(reference) for reference in asked.references))
        if asked.repeats > 1:
            said = dict.fromkeys(meanings.words(sample.text) for samples in drawn for sample in samples)
            await meanings.learn(
                pair for words in said for target in targets for pair in ((words, target), (target, words))
            )
        texts = sorted({sample.text for first in firsts.values() for sample in first.samples})
        grades = await _grades(asked, texts, ask, judging)
        relevances = await _relevances(asked, contexts, ask, judging)
        found = {}
        for context in contexts:
            samples = firsts[context].samples
            measures = _lexical(samples, asked.references) | _uncertainty(samples)
            measures["judge"] = float(np.mean([grades[sample.text] for sample in samples]))
            measures["relevance"] = max((relevances[text] for text in context), default=0.0)
            estimate, votes = believed[context], alike[context]
            if not isinstance(estimate, RagguardError):
                measures["semantic_entropy"] = estimate.estimates["entropy"].value
                measures["seper"] = estimate.estimates["soft"].value
                measures["seper_hard"] = estimate.estimates["hard"].value
            if not isinstance(votes, RagguardError):
                measures["seper_votes"] = votes.estimates["soft"].value
            soft, hard = _growing(series[context] if asked.repeats > 1 else [], targets, meanings)
            found[context] = Believed(measures, soft, hard)
        return found


async def _grades(asked: Asked, texts: Sequence[str], ask: Asker, prompts: PromptSet) -> dict[str, float]:
    """Returns the judge's grade of each answer, from 1 to 5, compared with the references."""
    questions = [response_grade(prompts, asked.question, text, asked.references) for text in texts]
    return {
        text: read_rating(question, answered(answer)).expectation or 0.0
        for text, question, answer in zip(texts, questions, await ask(questions), strict=True)
    }


async def _relevances(
    asked: Asked, contexts: Sequence[Key], ask: Asker, prompts: PromptSet
) -> dict[str, float]:
    """Returns the probability that a passage is relevant to the judge, who sees no answer."""
    texts = list(dict.fromkeys(text for context in contexts for text in context))
    questions = [relevance(prompts, asked.question, text) for text in texts]
    return {
        text: read_relevance(question, answered(answer)).value
        for text, question, answer in zip(texts, questions, await ask(questions), strict=True)
    }


def _lexical(samples: Sequence[Sample], references: Sequence[str]) -> dict[str, float]:
    """Returns the means of the measures that compare words."""
    named: dict[str, Callable[[str, list[str]], float]] = {
        "exact_match": exact_match, "rouge_l": rouge_l, "token_f1": token_f1, "bleu": bleu, "matched": matched,
    }  # fmt: skip
    each = {
        name: np.array([f(sample.text, list(references)) for sample in samples]) for name, f in named.items()
    }
    found = {name: float(values.mean()) for name, values in each.items()}
    # Belief without a comparison of meanings shows how much of an error the comparison makes.
    return found | {"seper_words": float(_weights(samples) @ each["exact_match"])}


def _weights(samples: Sequence[Sample]) -> Floats:
    """Returns the weight of each answer; equal weights where the engine shows no log-probabilities."""
    shown = all(sample.logprobs for sample in samples)
    return sample_weights([sample.logprobs if shown else (0.0,) for sample in samples])


def _uncertainty(samples: Sequence[Sample]) -> dict[str, float]:
    """Returns the perplexity a token and the entropy of the answers' words; an empty mapping where the engine shows no
    log-probabilities."""
    if not all(sample.logprobs for sample in samples):
        return {}
    return {
        "perplexity": float(np.mean([np.exp(-np.mean(sample.logprobs)) for sample in samples])),
        "entropy": float(np.mean([-np.sum(sample.logprobs) for sample in samples])),
    }


def _growing(
    repeats: Sequence[Sequence[Sample]], targets: Sequence[str], meanings: Meanings
) -> tuple[Floats, Floats]:
    """Returns soft and hard belief from the first 1, 2, … answers of each repeat; hard by equal words, each a
    meaning."""
    soft, hard = [], []
    for samples in repeats:
        words = [meanings.words(sample.text) for sample in samples]
        there = [[meanings.entailment(word, target)[0] for target in targets] for word in words]
        back = [[meanings.entailment(target, word)[0] for target in targets] for word in words]
        means = np.asarray(kernel(there, back))
        matches = np.array([[meanings.matches(word, target) for target in targets] for word in words])
        weights, n = _weights(samples), len(samples)
        first = np.tri(n, dtype=bool)
        rows = np.where(first, weights, 0.0)
        rows /= rows.sum(axis=-1, keepdims=True)
        soft.append(seper_soft(rows, np.broadcast_to(means, (n, *means.shape)), mask=first))
        ids = np.broadcast_to(np.arange(n), (n, n))
        hard.append(seper_hard(rows, ids, np.broadcast_to(matches, (n, *matches.shape)), mask=first))
    return np.array(soft), np.array(hard)
