"""Examines a model: asks it about every case and compares what it says with what is true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ragguard.engines.base import Engine
from ragguard.engines.entailer import EngineEntailer
from ragguard.engines.entailment import Pair
from ragguard.engines.prompts import PromptSet
from ragguard.metrics.agreement import coefficient
from ragguard.metrics.answers import mean_logprob, query_gain
from ragguard.metrics.arrays import aggregate
from ragguard.scorers.asker import Models
from ragguard.scorers.exam.cases import SAME_SUBJECT, WITHOUT, exam_cases
from ragguard.scorers.exam.figures import (
    MISLEADING,
    Key,
    Numbers,
    fitted_log_odds,
    numbers_of,
)
from ragguard.scorers.exam.record import ExamRecord
from ragguard.scorers.exam.short_form import (
    PRIORITY,
    Tell,
    examine_reranker,
    label_number,
    label_questions,
    sit_exam,
    with_areas,
)
from ragguard.scorers.probes import abstention, grade, greedy, likelihood, query_likelihood, relevance
from ragguard.scorers.question import EntailQuestion, Question, SampleQuestion
from ragguard.text.language import normalise

REPEATED, TIMES = 20, 5
"""The questions that are asked several times, and how often each is."""
_GRADES = {"gold": 5, "partial": 3, "near": 2, "other": 1}


async def examine(engine: Engine, prompts: PromptSet, tell: Tell = lambda done, of: None) -> ExamRecord:
    """Returns the record of an examination; a probe that cannot be asked has a reason in place of a figure.

    Raises the error of the engine where it does not answer at all.
    """
    if "answer" not in prompts.templates:
        return await examine_reranker(engine, prompts, tell)
    record, numbers = await sit_exam(engine, prompts, _questions(prompts), tell, _number)
    log_odds = fitted_log_odds(numbers, "query_gain")
    return replace(with_areas(record, numbers, _figures(numbers)), log_odds=log_odds)


async def repeated(engine: Engine, prompts: PromptSet) -> dict[str, float]:
    """Returns `ExamRecord.spread`: twenty questions, each asked `TIMES` times one after the other. The engine must have
    no cache of its own. To be called before the examination, so that a server has not seen the questions either."""
    models = Models(engine, engine, EngineEntailer(engine, prompts), PRIORITY)
    spread: dict[str, float] = {}
    cold: list[float] = []
    for probe, ask in (("abstention", abstention), ("relevance", relevance)):
        if probe not in prompts.templates:
            continue
        asked = [ask(prompts, case.question, case.near) for case in exam_cases().questions[-REPEATED // 2 :]]
        rounds = [await models.respond(asked) for _ in range(TIMES)]
        table = np.array(
            [[label_number((probe, "near", 0), answer, {}) for answer in answers] for answers in rounds]
        )
        spread[probe] = round(float(np.sqrt(table.var(axis=0, ddof=1).mean())), 6)
        cold += np.abs(table[0] - table[1:].mean(axis=0)).tolist()
    return spread | {"cold": round(float(np.mean(cold)), 6)}


def _questions(prompts: PromptSet) -> dict[Key, Question]:
    """Returns all questions. What decides no verdict, or is told by few cases, is asked of every second question:
    written answers, grades, second hops."""
    cases, asked = exam_cases(), dict[Key, Question]()
    for at, case in enumerate(cases.questions):
        second = at % 2 == 0
        for kind in ("gold", *SAME_SUBJECT, *WITHOUT):
            passage = getattr(case, kind)
            if kind in ("gold", "near") or (kind == "other" and second):
                asked |= label_questions(prompts, at, case, kind)
            if kind in SAME_SUBJECT:
                asked["relevance", kind, at] = relevance(prompts, case.question, passage)
            if kind in _GRADES and second:
                asked["grades", kind, at] = grade(prompts, case.question, passage)
            if "query" in prompts.templates:
                asked["query_gain", kind, at] = query_likelihood(prompts, case.question, passage)
        if "query_closed" in prompts.templates:
            asked["query_gain", "alone", at] = query_likelihood(prompts, case.question)
        for kind in ("gold", *MISLEADING):
            asked["likelihood", kind, at] = likelihood(
                prompts, case.question, [getattr(case, kind)], case.answer
            )
        asked["entailment", "same", at] = EntailQuestion(Pair(case.question, case.answer, case.same))
        asked["entailment", "wrong", at] = EntailQuestion(Pair(case.question, case.answer, case.wrong))
        if second:
            asked["right", "gold", at] = _greedy(prompts, case.question, [case.gold])
    for at, two in enumerate(cases.two_hop[::2], len(cases.questions)):
        for kind, passage in (("gold", two.second), ("near", two.near)):
            asked["likelihood", kind, at] = likelihood(
                prompts, two.question, [two.first, passage], two.answer
            )
        asked["right", "two_hop", at] = _greedy(prompts, two.question, [two.first, two.second])
    return asked


def _greedy(prompts: PromptSet, question: str, passages: Sequence[str]) -> SampleQuestion:
    asked = greedy(prompts, question, passages)
    return replace(asked, max_tokens=min(16, asked.max_tokens))


def _number(key: Key, answer: Any, answers: Mapping[Key, Any]) -> float:
    """Returns what an answer says as a number: a probability, a log-probability, a grade, or whether it is right."""
    probe, kind, at = key
    if probe in ("abstention", "relevance"):
        return label_number(key, answer, answers)
    if probe == "grades":
        return float(np.dot(answer.p, range(1, len(answer.p) + 1)) / max(sum(answer.p), 1e-300))
    if probe == "query_gain":
        return query_gain(answer.logprobs, answers[probe, "alone", at].logprobs)
    if probe == "likelihood":
        return mean_logprob([answer.logprobs])
    if probe == "entailment":
        return float(np.argmax(answer.p) == (0 if kind == "same" else 2))
    cases = exam_cases()
    case = cases.questions[at] if kind == "gold" else cases.two_hop[::2][at - len(cases.questions)]
    return float(f" {normalise(case.answer)} " in f" {normalise(answer.samples[0].text)} ")


def _figures(numbers: Numbers) -> dict[str, float]:
    """Returns the figures that are no areas; nan where nothing was asked."""
    abstains = [float(p >= 0.5) for p in numbers_of(numbers, "abstention", *WITHOUT)]
    graded = [(number, float(_GRADES[key[1]])) for key, number in numbers.items() if key[0] == "grades"]
    judged, intended = np.array(graded).reshape(-1, 2).T
    return {
        "grades": coefficient(judged, intended, "spearman"),
        "entailment": aggregate(numbers_of(numbers, "entailment", "same", "wrong")).mean,
        "right": aggregate(numbers_of(numbers, "right", "gold")).mean,
        "right_two_hop": aggregate(numbers_of(numbers, "right", "two_hop")).mean,
        "abstains": aggregate(abstains).mean,
    }
