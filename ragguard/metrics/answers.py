"""Compares an answer with reference texts by words only, recognises texts that are no answer, and computes from the
log-probabilities of a reference's tokens how probable a model finds it as its answer.

`likelihood` is per token, so that long and short references are comparable; `likelihood_total` is the probability of
the whole text. One prefill gives both, where SePer needs sampled answers and an entailer.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from ragguard.errors import InvalidInput
from ragguard.metrics import arrays
from ragguard.metrics.registry import Metric, declare
from ragguard.text.language import ABSTENTION, ENGLISH, Language, normalise

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
        "exact_match", "Exact match", "Whether the answer equals a reference but for case, articles and punctuation.",
        needs="the answer, references", source=SQUAD, function=exact_match,
    ),
    Metric(
        "answer_correct", "Correct answer",
        "1 correct, 0.5 correct but unsupported, 0 wrong or abstained; the label says which.",
        needs="the answer, references, entailment", source="Trappolini et al. 2025", levels=("run",),
    ),
    Metric(
        "answer_in_context", "Answer in the context",
        "Whether a reference stands, word for word, in what the model read. No model is asked.",
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
        "How much of an ideal answer the answer says: 2 about half, 5 all; additions are free.", range=(1, 5),
        needs="a judge, the answer, an ideal answer", source="Schwartz et al.", levels=("run",),
    ),
)  # fmt: skip


def is_abstention(answer: str, language: Language = ENGLISH) -> bool:
    """Returns whether an answer says that it gives none, by how it begins or, if it is one clause, by how it ends.

    An answer that goes on to say something ("…, but it was Oslo", "Not sure, maybe Oslo") is no abstention.
    """
    if not isinstance(answer, str):
        raise InvalidInput("answer", answer, "a string")
    words = normalise(answer.replace("-", " "), language).split()
    if not any(char.isalnum() for word in words for char in word) or _NOT_APPLICABLE.fullmatch(
        answer.strip()
    ):
        return True
    known = _phrases(language)
    end = known.abstains(words)
    if end is not None and end < len(words) and _is_title(answer):
        return False
    if end is not None:
        turns = ((at, known.at("turns", words, at)) for at in range(end, len(words)))
        turned = next((at + length for at, length in turns if length), None)
        return turned is None or is_abstention(" ".join(words[turned:]), language)
    clauses = [normalise(clause, language).split() for clause in _CLAUSE.split(answer) if clause.strip()]
    while len(clauses) > 1 and known.at("lead_ins", clauses[0], 0) == len(clauses[0]):
        clauses.pop(0)
    return len(clauses) == 1 and known.ends(clauses[0])


def begins_abstaining(answer: str, language: Language = ENGLISH) -> bool:
    """Returns whether the first words of an answer abstain, whatever follows: "I don't know who won, but …".

    Lead-ins do not count: "As an AI language model, I do not have …" often stands before a full answer.
    """
    words = normalise(answer.replace("-", " "), language).split()
    return _phrases(language).at("abstentions", words, 0) > 0 and not _is_title(answer)


_NOT_APPLICABLE = re.compile(r"n ?/ ?a\.?|n\.a\.", re.IGNORECASE)
"""A mark in a table's cell, which is no word: "Na" is sodium."""


def _is_title(answer: str) -> bool:
    """Returns whether a text is written like the title of a work: "I Don't Know How to Love Him"."""
    first, *others = answer.split()
    if not (answer[-1].isalnum() and first[0].isupper() and not answer.isupper()):
        return False
    capitals = [word for word in others if word[0].isupper() and re.split("['’]", word)[0] != "I"]
    return len(capitals) > 1 and all(len(word) <= _SMALL_WORD for word in others if not word[0].isupper())


_SMALL_WORD = 3
"""The most letters of a word that stays without a capital in a title, such as "to" or "the"."""
_CLAUSE = re.compile(r"[.,;:!?()\n—–]+")
_LABELS = (ABSTENTION, ABSTENTION.replace("-", " "))
"""How ragguard's own prompts tell a model to abstain, whatever the language."""
_EMPTY = "Empty Response"
"""LlamaIndex's answer if nothing was retrieved, whatever the language."""
_BETWEEN = 2
"""The most words between an ending and the name of a source, as in "not mentioned in the provided passages"."""


class _Phrases:
    """The phrases of a language by which abstentions are recognised, as normalised words."""

    def __init__(self, language: Language) -> None:
        lists = asdict(language) | {
            "abstentions": (*language.abstentions, *_LABELS), "blanks": (*language.blanks, _EMPTY),
        }  # fmt: skip
        self._known = {
            kind: {tuple(normalise(phrase, language).split()) for phrase in phrases}
            for kind, phrases in lists.items()
        }
        self._longest = {kind: max(map(len, known), default=0) for kind, known in self._known.items()}

    def at(self, kind: str, words: Sequence[str], start: int) -> int:
        """Returns how many words the longest phrase has that begins at a position; 0 where no phrase does."""
        known, most = self._known[kind], min(self._longest[kind], len(words) - start)
        return next((n for n in range(most, 0, -1) if tuple(words[start : start + n]) in known), 0)

    def abstains(self, words: Sequence[str]) -> int | None:
        """Returns the position behind the abstention with which a text begins, after lead-ins; None without one."""
        start = 0
        while start < len(words):
            if length := self.at("abstentions", words, start):
                return start + length
            if start + self.at("blanks", words, start) == len(words):
                return len(words)
            if not (length := self.at("lead_ins", words, start)):
                return None
            start += length
        return None

    def ends(self, words: Sequence[str]) -> bool:
        """Returns whether a text ends in a phrase of abstention, with or without the name of a source behind it."""
        first = max(0, len(words) - self._longest["endings"] - _BETWEEN - 1)
        for at in range(first, len(words)):
            if length := self.at("endings", words, at):
                tail = words[at + length :]
                if not tail or (len(tail) <= _BETWEEN + 1 and self.at("sources", tail, len(tail) - 1)):
                    return True
        return False


_phrases = lru_cache(maxsize=16)(_Phrases)


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
