"""Examines a model: asks it about every case and compares what it says with what is true.

Answers go through the engine's cache, so that an examination that was stopped goes on where it was.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar, cast

import numpy as np

from ragguard.engines.base import Engine
from ragguard.engines.entailer import EngineEntailer, Pair
from ragguard.engines.prompts import PromptSet
from ragguard.errors import EngineProtocolError, EngineRejected, PromptTooLong, ScoringError, UnfitText
from ragguard.metrics import arrays
from ragguard.metrics.agreement import auc
from ragguard.metrics.answers import query_gain
from ragguard.scorers.exam.record import ExamRecord
from ragguard.scorers.models import Models
from ragguard.scorers.probes import abstention, belief, grade, likelihood, query_likelihood, relevance
from ragguard.scorers.question import Answer, EntailQuestion, LabelAnswer, Question, SampleQuestion
from ragguard.text.language import normalise

T = TypeVar("T")
Tell = Callable[[int, int], None]
"""Takes how many questions are answered, and how many there are."""
BRIEF_CASES = 10
"""The cases of the short form: five questions, each with the passage that answers and a near miss."""
BRIEF_PROMPTS = 2 * BRIEF_CASES
"""The prompts of the short form: abstention and relevance for each case."""
REPEATED, TIMES = 20, 5
"""The questions that are asked several times, and how often each is."""
PRIORITY = 20
"""Examinations wait for everything else."""
_AT_ONCE = 16
"""How many questions are sent at a time. After a stop, at most these are asked again."""
_OF_THE_PROBE = EngineRejected, EngineProtocolError, PromptTooLong, ScoringError, UnfitText
"""The errors for which a probe has a reason in place of a figure; others end the examination."""
_GRADES = {"gold": 5, "partial": 3, "near": 2, "other": 1}
_WITHOUT = "near", "other"
_MISLEADING = "near", "contradiction"
_OTHER = 7
"""The passage about another subject is taken from the question this many places further on."""
_PENALTY = 0.1
"""How strongly the fit of the log-odds draws its slope and intercept to 0."""


@dataclass(frozen=True, slots=True)
class ExamQuestion:
    """A question with its answer and five passages."""

    question: str
    answer: str
    same: str
    """The answer in other words."""
    wrong: str
    """Another answer, which contradicts the right one."""
    gold: str
    """The passage that answers."""
    near: str
    """A passage of the same kind about something else."""
    partial: str
    """A passage about the subject of the question that does not hold the answer."""
    other: str
    """A passage about another subject."""

    @property
    def contradiction(self) -> str:
        """The passage that answers, with the wrong answer in it."""
        return self.gold.replace(self.answer, self.wrong)


@dataclass(frozen=True, slots=True)
class TwoHopQuestion:
    """A question whose answer needs two passages."""

    question: str
    answer: str
    first: str
    second: str
    near: str


@dataclass(frozen=True, slots=True)
class Cases:
    """All cases of the examination."""

    questions: Sequence[ExamQuestion]
    two_hop: Sequence[TwoHopQuestion]


@cache
def exam_cases() -> Cases:
    """Returns the cases that ship with the package."""
    data = json.loads((files("ragguard.scorers.exam") / "cases.json").read_text(encoding="utf-8"))
    listed = data["questions"]
    return Cases(
        [
            ExamQuestion(question=one.pop("q"), other=listed[(at + _OTHER) % len(listed)]["gold"], **one)
            for at, one in enumerate([dict(one) for one in listed])
        ],
        [TwoHopQuestion(question=one.pop("q"), **one) for one in data["two_hop"]],
    )


@dataclass(slots=True)
class _Paper:
    """The questions of one examination by probe and case, and the answers so far."""

    asked: dict[tuple[str, str, int], Question] = field(default_factory=dict)
    answers: dict[tuple[str, str, int], Answer] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    """The reason for which a probe has no answers."""

    def values(self, probe: str, case: str, read: Callable[[Any], T]) -> list[T]:
        """Returns what `read` makes of the answers to a probe about the passages of one kind, by question."""
        found = sorted(key for key in self.answers if key[:2] == (probe, case))
        return [read(self.answers[key]) for key in found]


async def examine(engine: Engine, prompts: PromptSet, tell: Tell = lambda done, of: None) -> ExamRecord:
    """Returns the record of a whole examination; a probe that cannot be asked has a reason in place of a figure.

    Raises the error of the engine where it does not answer at all.
    """
    began, info = time.monotonic(), await engine.info()
    paper = _Paper(_questions(prompts))
    await _answer(engine, prompts, paper, tell)
    figures = _figures(paper)
    return ExamRecord(
        info.model, info.fingerprint, prompts.identity, seconds=round(time.monotonic() - began, 1),
        figures={name: round(value, 4) for name, value in figures.items()}, reasons=paper.reasons,
        log_odds=_log_odds(paper),
    )  # fmt: skip


async def examine_briefly(engine: Engine, prompts: PromptSet) -> ExamRecord:
    """Returns the record of the short form: ten cases, `BRIEF_PROMPTS` prompts."""
    began, info = time.monotonic(), await engine.info()
    paper = _Paper()
    for at, one in enumerate(exam_cases().questions[: BRIEF_CASES // 2]):
        for case in ("gold", "near"):
            _ask_labels(paper.asked, prompts, at, one, case)
    await _answer(engine, prompts, paper, lambda done, of: None)
    figures = {
        "abstention": _auc(_abstains(paper, "near"), _abstains(paper, "gold")),
        "relevance": _auc(_relevant(paper, "gold"), _relevant(paper, "near")),
    }
    return ExamRecord(
        info.model, info.fingerprint, prompts.identity, brief=True, seconds=round(time.monotonic() - began, 1),
        figures={name: value for name, value in figures.items() if np.isfinite(value)}, reasons=paper.reasons,
    )  # fmt: skip


async def repeated(engine: Engine, prompts: PromptSet) -> dict[str, float]:
    """Returns `ExamRecord.spread`: twenty questions, each asked `TIMES` times one after the other. The engine must have
    no cache of its own. To be called before the examination, so that a server has not seen the questions either."""
    asked = dict[tuple[str, str, int], Question]()
    for at, one in enumerate(exam_cases().questions[-REPEATED // 2 :]):
        _ask_labels(asked, prompts, at, one, "near")
    models = Models(engine, engine, EngineEntailer(engine, prompts), PRIORITY)
    by_probe = {
        probe: [one for key, one in asked.items() if key[0] == probe] for probe in ("abstention", "relevance")
    }
    found, cold = dict[str, float](), list[float]()
    for probe, questions in by_probe.items():
        rounds = []
        for _ in range(TIMES):
            answers = cast(Sequence[LabelAnswer], await models.respond(questions))
            rounds.append(
                [one.p[0] / (max(sum(one.p), 1e-300) if probe == "relevance" else 1) for one in answers]
            )
        table = np.array(rounds)
        found[probe] = round(float(np.sqrt(table.var(axis=0, ddof=1).mean())), 6)
        cold += np.abs(table[0] - table[1:].mean(axis=0)).tolist()
    return found | {"cold": round(float(np.mean(cold)), 6)}


def _ask_labels(
    asked: dict[tuple[str, str, int], Question], prompts: PromptSet, at: int, one: ExamQuestion, case: str
) -> None:
    passage = getattr(one, case)
    asked["abstention", case, at] = abstention(prompts, one.question, passage)
    asked["relevance", case, at] = relevance(prompts, one.question, passage)


def _questions(prompts: PromptSet) -> dict[tuple[str, str, int], Question]:
    """Returns the questions of the whole form. What decides no verdict, or is told by few cases, is asked of every
    second question: written answers, passages on the subject without the answer, grades, second hops."""
    cases, asked = exam_cases(), dict[tuple[str, str, int], Question]()
    for at, one in enumerate(cases.questions):
        second = at % 2 == 0
        for case in _GRADES:
            passage = getattr(one, case)
            if case == "gold" or (case in _WITHOUT and (case == "near" or second)):
                _ask_labels(asked, prompts, at, one, case)
            if second:
                asked["grades", case, at] = grade(prompts, one.question, passage)
            if "query" in prompts.templates and (second or case != "partial"):
                asked["query_gain", case, at] = query_likelihood(prompts, one.question, passage)
        if "query_closed" in prompts.templates:
            asked["query_gain", "alone", at] = query_likelihood(prompts, one.question)
        for case in ("gold", *_MISLEADING):
            passages = [getattr(one, case)]
            asked["likelihood", case, at] = likelihood(prompts, one.question, passages, one.answer)
        asked["entailment", "same", at] = EntailQuestion(Pair(one.question, one.answer, one.same))
        asked["entailment", "wrong", at] = EntailQuestion(Pair(one.question, one.answer, one.wrong))
        if second:
            asked["right", "gold", at] = _greedy(prompts, one.question, [one.gold])
    for at, two in enumerate(cases.two_hop[::2], len(cases.questions)):
        for case, passage in (("gold", two.second), ("near", two.near)):
            passages = [two.first, passage]
            asked["likelihood", case, at] = likelihood(prompts, two.question, passages, two.answer)
        asked["right", "two_hop", at] = _greedy(prompts, two.question, [two.first, two.second])
    return asked


def _greedy(prompts: PromptSet, question: str, passages: Sequence[str]) -> SampleQuestion:
    asked = belief(prompts, question, passages, n=1, seed=0)
    return SampleQuestion(asked.prompt, 1, min(16, asked.max_tokens), 0.0, seed=0)


async def _answer(engine: Engine, prompts: PromptSet, paper: _Paper, tell: Tell) -> None:
    """Asks the questions, a few of each probe at a time; a probe whose question fails is asked no more."""
    models = Models(engine, engine, EngineEntailer(engine, prompts), PRIORITY)
    todo: dict[str, list[tuple[str, str, int]]] = {}
    for key in sorted(paper.asked, key=lambda key: (key[2], key[1])):
        todo.setdefault(key[0], []).append(key)

    async def few(probe: str, keys: Sequence[tuple[str, str, int]]) -> None:
        try:
            answers = await models.respond([paper.asked[key] for key in keys])
        except _OF_THE_PROBE as error:
            if len(paper.reasons) + 1 == len({key[0] for key in paper.asked}):  # nothing at all is answered
                raise
            paper.reasons[probe] = str(error)
            todo[probe] = []
        else:
            paper.answers.update(zip(keys, answers, strict=True))

    while any(todo.values()):
        now = {probe: keys[:_AT_ONCE] for probe, keys in todo.items() if keys}
        todo = {probe: keys[_AT_ONCE:] for probe, keys in todo.items()}
        # Together, so that questions about one passage are read together.
        await asyncio.gather(*(few(probe, keys) for probe, keys in now.items()))
        tell(len(paper.answers), len(paper.asked))
    for probe in paper.reasons:  # a part of the cases would be another examination
        paper.answers = {key: answer for key, answer in paper.answers.items() if key[0] != probe}


def _figures(paper: _Paper) -> dict[str, float]:
    """Returns the figures that the answers give."""
    gain = {case: _gains(paper, case) for case in _GRADES}
    likely = {case: paper.values("likelihood", case, _mean) for case in ("gold", *_MISLEADING)}
    graded = [
        (g, float(_GRADES[case])) for case in _GRADES for g in paper.values("grades", case, _expected_grade)
    ]
    held = [p >= 0.5 for case in _WITHOUT for p in _abstains(paper, case)]
    cases = exam_cases()
    answers = [one.answer for one in cases.questions[::2]], [one.answer for one in cases.two_hop[::2]]
    right = [_holds(paper.values("right", case, _text), wanted) for case, wanted in
             zip(("gold", "two_hop"), answers, strict=True)]  # fmt: skip
    verdicts = [
        *paper.values("entailment", "same", lambda answer: float(np.argmax(answer.p) == 0)),
        *paper.values("entailment", "wrong", lambda answer: float(np.argmax(answer.p) == 2)),
    ]
    found = {
        "abstention": _auc(_both(paper, _abstains), _abstains(paper, "gold")),
        "relevance": _auc(_relevant(paper, "gold"), _both(paper, _relevant)),
        "query_gain": _auc(gain["gold"], [*gain["near"], *gain["other"]]),
        "likelihood": _auc(likely["gold"], [*likely["contradiction"], *likely["near"]]),
        "grades": _spearman(graded),
        "entailment": _share(verdicts),
        "partial": _auc(gain["gold"], gain["partial"]),
        "right": _share(right[0]),
        "right_two_hop": _share(right[1]),
        "abstains": _share(held),
    }
    return {name: value for name, value in found.items() if np.isfinite(value)}


def _both(paper: _Paper, read: Callable[[_Paper, str], list[float]]) -> list[float]:
    return [value for case in _WITHOUT for value in read(paper, case)]


def _abstains(paper: _Paper, case: str) -> list[float]:
    return paper.values("abstention", case, lambda answer: float(answer.p[0]))


def _relevant(paper: _Paper, case: str) -> list[float]:
    return paper.values("relevance", case, lambda answer: answer.p[0] / max(sum(answer.p), 1e-300))


def _gains(paper: _Paper, case: str) -> list[float]:
    found = sorted(key for key in paper.answers if key[:2] == ("query_gain", case))
    pairs = [(paper.answers[key], paper.answers["query_gain", "alone", key[2]]) for key in found]
    return [query_gain(one.logprobs, other.logprobs) for one, other in cast(Any, pairs)]


def _mean(answer: Any) -> float:
    return float(answer.mean)


def _text(answer: Any) -> str:
    return str(answer.samples[0].text)


def _expected_grade(answer: Any) -> float:
    return float(np.dot(answer.p, range(1, len(answer.p) + 1)) / max(sum(answer.p), 1e-300))


def _holds(texts: Sequence[str], wanted: Sequence[str]) -> list[bool]:
    """Returns, for each text, whether it holds the words of the wanted answer."""
    return [
        f" {normalise(answer)} " in f" {normalise(text)} "
        for text, answer in zip(texts, wanted, strict=False)
    ]


def _share(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else np.nan


def _auc(good: Sequence[float], bad: Sequence[float]) -> float:
    """Returns how often a good case has the higher number of a pair; nan without a pair."""
    return auc([*good, *bad], [1] * len(good) + [0] * len(bad))


def _spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Returns the rank correlation of pairs of numbers; nan where a side does not vary."""
    table = np.array(pairs).reshape(-1, 2).T
    if table.shape[1] < 2 or not np.ptp(table, axis=1).all():
        return np.nan
    return float(np.asarray(np.corrcoef(arrays.ranks(table)))[0, 1])


def _log_odds(paper: _Paper) -> tuple[float, float] | None:
    """Fits the log-odds of an answering passage by its query gain, with both kinds weighted alike, so that a half means
    that neither is likelier; a small penalty keeps the slope finite where the gains separate the kinds."""
    good, bad = _gains(paper, "gold"), _both(paper, _gains)
    if not good or not bad:
        return None
    x = np.stack([np.ones(len(good) + len(bad)), np.array([*good, *bad])], axis=1)
    y = np.array([1.0] * len(good) + [0.0] * len(bad))
    weight = np.where(y == 1, 0.5 / len(good), 0.5 / len(bad)) * len(y)
    beta = np.zeros(2)
    for _ in range(100):
        p = 1 / (1 + np.exp(-x @ beta))
        slope = x.T @ (weight * (y - p)) - _PENALTY * beta
        step = np.linalg.solve((x * (weight * p * (1 - p))[:, None]).T @ x + _PENALTY * np.eye(2), slope)
        beta = beta + step
        if np.abs(step).max() < 1e-9:
            break
    return round(float(beta[0]), 4), round(float(beta[1]), 4)
