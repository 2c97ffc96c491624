"""Compares an answer with reference texts by words only, and computes from the log-probabilities of a reference's
tokens how probable a model finds it as its answer.

`likelihood` is per token, so that long and short references are comparable; `likelihood_total` is the probability of
the whole text. One prefill gives both, where SePer needs sampled answers and an entailer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from ragguard.errors import InvalidInput
from ragguard.metrics import arrays
from ragguard.metrics.registry import Metric, declare
from ragguard.text.language import ENGLISH, Language, normalise

SQUAD = "Rajpurkar et al. 2016 (SQuAD)"


def exact_match(answer: str, references: str | Sequence[str], language: Language = ENGLISH) -> float:
    """Returns 1 if the answer equals a reference after `normalise`, else 0; nan without references."""
    return _best(answer, references, language, lambda ours, theirs: float(ours == theirs))


def token_f1(answer: str, references: str | Sequence[str], language: Language = ENGLISH) -> float:
    """Returns the F1 of the words that answer and reference share, for the best reference; nan without references."""
    return _best(answer, references, language, lambda ours, theirs: _f1(_shared(ours, theirs), ours, theirs))


def rouge_l(answer: str, references: str | Sequence[str], language: Language = ENGLISH) -> float:
    """Returns the F1 of the longest common subsequence of words, for the best reference; nan without references."""
    return _best(answer, references, language, lambda ours, theirs: _f1(_common(ours, theirs), ours, theirs))


declare(
    Metric(
        "exact_match", "Exact match", "Whether the answer equals a reference, without case, articles and punctuation.",
        needs="the answer, references", source=SQUAD, function=exact_match,
    ),
    Metric(
        "answer_correct", "Correct, supported answer",
        "1 correct, 0.5 correct but unsupported, 0 wrong or abstained; the label says which.",
        needs="the answer, references, entailment", source="Trappolini et al. 2025", levels=("run",),
    ),
    Metric(
        "answer_in_context", "Answer in the context",
        "Whether what the model read has a reference, or a run each part of one, word for word. No model is asked.",
        needs="references", source="arXiv 2607.00725", levels=("step", "run"),
    ),
    Metric(
        "ungrounded", "Ungrounded names", "The share of the answer's names and figures that are in no passage read.",
        direction="lower", unit="share", needs="the answer", source="ragguard", levels=("run",),
    ),
    Metric(
        "token_f1", "Token F1", "F1 of the words that the answer shares with the nearest reference.",
        needs="the answer, references", source=SQUAD, function=token_f1,
    ),
    Metric(
        "rouge_l", "ROUGE-L", "F1 of the longest common subsequence of words with the nearest reference.",
        needs="the answer, references", source="Lin 2004", function=rouge_l,
    ),
    Metric(
        "response_grade", "Response grade",
        "How much of an ideal answer the answer has: 2 about half, 5 all; additions cost nothing.", range=(1, 5),
        needs="a judge, the answer, an ideal answer", source="Schwartz et al.", levels=("run",),
    ),
)  # fmt: skip


def _best(
    answer: str,
    references: str | Sequence[str],
    language: Language,
    compare: Callable[[list[str], list[str]], float],
) -> float:
    texts = [references] if isinstance(references, str) else arrays.items("references", references)
    for argument, text in [("answer", answer), *((f"references[{i}]", text) for i, text in enumerate(texts))]:
        if not isinstance(text, str):
            raise InvalidInput(argument, text, "a string")
    ours = normalise(answer, language).split()
    return max((compare(ours, normalise(text, language).split()) for text in texts), default=float("nan"))


def _f1(common: int, ours: list[str], theirs: list[str]) -> float:
    if not ours and not theirs:
        return 1.0
    return 2 * common / (len(ours) + len(theirs))


def _shared(ours: list[str], theirs: list[str]) -> int:
    return (Counter(ours) & Counter(theirs)).total()


def _common(ours: list[str], theirs: list[str]) -> int:
    """Returns the length of the longest common subsequence."""
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys(theirs))}
    target = np.array([vocabulary[word] for word in theirs], dtype=np.intp)
    best = np.zeros(len(theirs) + 1, dtype=np.intp)
    for word in ours:
        best[1:] = np.maximum(best[1:], best[:-1] + (target == vocabulary.get(word, -1)))
        np.maximum.accumulate(best, out=best)
    return int(best[-1])


SOURCE = "IGPO, TRACE: the log-probability of the answer"


def likelihood(logprobs: Sequence[ArrayLike]) -> float:
    """Returns exp of the mean log-probability of a reference's tokens, of the best reference; nan for none."""
    return max((math.exp(_mean(one)) for one in arrays.items("logprobs", logprobs)), default=math.nan)


def likelihood_total(logprobs: Sequence[ArrayLike], ends: Sequence[float | None] | None = None) -> float:
    """Returns the probability that the answer is one of the references, which must differ; nan for none.

    `ends` has the log-probability that the answer ends behind each reference: an answer that goes on is another one.
    Where it is not known, that of the likeliest reference without it counts, as an upper bound: "New York" is in "New
    York Times", so that both cannot be added.
    """
    texts = [float(np.sum(_read(one))) for one in arrays.items("logprobs", logprobs)]
    known: list[float | None] = [None] * len(texts) if ends is None else [*arrays.items("ends", ends)]
    if len(known) != len(texts):
        raise InvalidInput("ends", ends, "one log-probability, or None, for each reference")
    whole = [math.exp(text + end) for text, end in zip(texts, known, strict=True) if end is not None]
    begun = max((math.exp(text) for text, end in zip(texts, known, strict=True) if end is None), default=0.0)
    return min(1.0, sum(whole) + begun) if texts else math.nan


def mean_logprob(logprobs: Sequence[ArrayLike]) -> float:
    """Returns the mean log-probability of a token of the best reference; nan for none."""
    return max((_mean(one) for one in arrays.items("logprobs", logprobs)), default=math.nan)


def query_gain(given: ArrayLike, alone: ArrayLike) -> float:
    """Returns how much a passage raises the mean log-probability of a query's tokens: `given` it, less `alone`."""
    return _mean(given) - _mean(alone)


_BRINGS = (-3.05, 4.66, 0.65)
"""The log-odds that a passage brings the answer: for any passage, for one in which a reference stands as words, and for
each nat that a token of the reference becomes likelier. Fitted on 53 questions of RAMDocs by smol, with the
passages that bring the answer and all others weighted alike."""
_BRINGS_BY_WORDS = (-2.59, 5.19)
"""The same without likelihoods."""


def brings_answer(stands: bool, gain: float | None) -> float:
    """Returns the probability that a passage brings the answer to a question.

    Args:
        stands: Whether a reference stands in it, word for word.
        gain: How much likelier it makes the likeliest reference, in nats a token; None if that is not known.
    """
    if not isinstance(stands, bool | np.bool_):
        raise InvalidInput("stands", stands, "True or False")
    base, by_words, by_gain = _BRINGS if gain is not None else (*_BRINGS_BY_WORDS, 0.0)
    odds = base + by_words * stands + by_gain * (0.0 if gain is None else arrays.parameter("gain", gain))
    return 1 / (1 + math.exp(-max(-700.0, min(700.0, odds))))


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
        "likelihood", "Likelihood of the reference",
        "How probable the model finds the reference as its answer, per token; the best reference counts.",
        unit="probability", needs="the probabilities of given texts, references (or the run's own answer)",
        source=SOURCE, levels=("step",), function=likelihood,
    ),
    Metric(
        "likelihood_total", "Probability of the references",
        "How probable it is that the model's answer is one of the references, its end included.", unit="probability",
        needs="the probabilities of given texts, references (or the run's own answer)", source=SOURCE, levels=("step",),
        function=likelihood_total,
    ),
    Metric(
        "delta_likelihood", "Δ likelihood",
        "How much the step moved the likelihood, after the steps before; how much a passage moves it by itself.",
        range=(-1, 1), unit="probability", needs="the likelihoods before and after", source=SOURCE,
        levels=("step", "passage"),
        function=likelihood,
    ),
    Metric(
        "delta_likelihood_alone", "Δ likelihood alone",
        "How much the step's passages move the likelihood with no other step in the context.", range=(-1, 1),
        unit="probability", needs="the likelihoods without retrieval and with only this step", source=SOURCE,
        levels=("step",), function=likelihood,
    ),
    Metric(
        "delta_likelihood_random", "Δ likelihood against random passages",
        "The likelihood after a hop by itself, or after all hops, minus that after as many passages of other "
        "questions.",
        range=(-1, 1), unit="probability", needs="passages of other questions (RandomBaseline)", source=SOURCE,
        levels=("step", "run"), function=likelihood,
    ),
    Metric(
        "log_gain", "Log gain of the step",
        "How much this step moved the mean log-probability of the reference's tokens.",
        range=(float("-inf"), float("inf")), unit="nats", needs="the likelihoods before and after the step",
        source=SOURCE, levels=("step",), function=mean_logprob,
    ),
    Metric(
        "likelihood_closed_book", "Likelihood without retrieval",
        "How probable the model found the reference before it read anything, per token.", direction="neither",
        unit="probability", needs="the probabilities of given texts, references (or the run's own answer)",
        source=SOURCE, levels=("run",), function=likelihood,
    ),
    Metric(
        "delta_likelihood_total", "Δ likelihood of the run", "How much all retrieval of the run moved the likelihood.",
        range=(-1, 1), unit="probability", needs="the likelihoods without retrieval and with all of it", source=SOURCE,
        levels=("run",), function=likelihood,
    ),
    Metric(
        "query_gain", "Fit to the query",
        "How much likelier the passage makes its step's query, per token; repeating the query counts, too.",
        range=(float("-inf"), float("inf")), unit="nats", needs="the probabilities of given texts",
        source="query likelihood (Ponte and Croft, 1998)", levels=("passage",), function=query_gain,
    ),
    Metric(
        "brings_answer", "Brings the answer",
        "How probably the passage brings the answer, by the words and the likelihood of a reference.",
        unit="probability", needs="references, the probabilities of given texts", source="ragguard",
        levels=("passage",), function=brings_answer,
    ),
)  # fmt: skip
