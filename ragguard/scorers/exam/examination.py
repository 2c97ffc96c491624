"""Examines a model: asks it about every case and compares what it says with what is true.

Answers go through the engine's cache, so that an examination that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ragguard.engines.base import Engine
from ragguard.engines.entailer import EngineEntailer
from ragguard.engines.entailment import Pair
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.errors import EngineProtocolError, EngineRejected, PromptTooLong, RagguardError, UnfitText
from ragguard.metrics import arrays
from ragguard.metrics.agreement import auc
from ragguard.metrics.answers import mean_logprob, query_gain
from ragguard.runtime.faults import NOTICES
from ragguard.scorers.asker import Asker, Models
from ragguard.scorers.exam.examined import log_odds_of
from ragguard.scorers.exam.record import SWITCH, ExamRecord, heeded, keep_record, known_record, record_file
from ragguard.scorers.probes import abstention, belief, grade, likelihood, query_likelihood, relevance
from ragguard.scorers.question import EntailQuestion, Question, SampleQuestion
from ragguard.text.language import normalise

Tell = Callable[[int, int], None]
"""Takes how many questions are answered, and how many there are."""
BRIEF_CASES = 24
"""The cases of the short form: twelve questions, each with the passage that answers and one without the answer, every
second one of these on the same subject. So many that a model which guesses reaches an AUC of 0.75 in 1.9 % of cases."""
BRIEF_PROMPTS = 2 * BRIEF_CASES
"""The prompts of the short form: abstention and relevance for each case."""
REPEATED, TIMES = 20, 5
"""The questions that are asked several times, and how often each is."""
PRIORITY = 20
"""Examinations wait for everything else."""
_AT_ONCE = 100
"""How many questions are sent at a time. After a stop, at most these are asked again."""
_OF_THE_PROBE = EngineRejected, EngineProtocolError, PromptTooLong, UnfitText
"""The errors for which a probe has a reason in place of a figure; others end the examination."""
_GRADES = {"gold": 5, "partial": 3, "near": 2, "other": 1}
_WITHOUT = "near", "other"
_MISLEADING = "near", "contradiction"
_AREAS: Mapping[str, tuple[str, ...]] = {
    "abstention": ("abstention", *_WITHOUT),
    "relevance": ("relevance", *_WITHOUT),
    "relevance_partial": ("relevance", "partial"),
    "query_gain": ("query_gain", *_WITHOUT),
    "partial": ("query_gain", "partial"),
    "likelihood": ("likelihood", *_MISLEADING),
}
"""The figures that are areas under the ROC curve: the probe, and the passages that are told from the right ones."""
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


class TwoHopQuestion(NamedTuple):
    """A question whose answer needs two passages."""

    question: str
    answer: str
    first: str
    second: str
    near: str


class Cases(NamedTuple):
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


Key: TypeAlias = tuple[str, str, int]
"""A probe, the kind of the passage or answer that it is about, and the number of the question."""


async def examine(
    engine: Engine, prompts: PromptSet, tell: Tell = lambda done, of: None, *, brief: bool = False
) -> ExamRecord:
    """Returns the record of an examination; a probe that cannot be asked has a reason in place of a figure. `brief`
    asks the short form: `BRIEF_CASES` cases, `BRIEF_PROMPTS` prompts.

    Raises the error of the engine where it does not answer at all.
    """
    began, info = time.monotonic(), await engine.info()
    answers, reasons = await _answer(engine, prompts, _questions(prompts, brief=brief), tell)
    numbers = {key: _number(key, answer, answers) for key, answer in answers.items() if key[1] != "alone"}
    scores = {key: log_odds_of(p, 1 - p) for key, p in numbers.items() if key[0] == "relevance"}
    figures = {
        name: round(value, 4) for name, value in _figures(numbers, brief=brief).items() if np.isfinite(value)
    }
    areas = () if brief else (name for name in _AREAS if name in figures)
    intervals = {name: _interval(figures[name], numbers, name) for name in areas}
    return ExamRecord(
        info.model, info.fingerprint, prompts.identity, brief=brief, seconds=round(time.monotonic() - began, 1),
        figures=figures, intervals=intervals, reasons=reasons, log_odds=_log_odds(numbers, "query_gain"),
        relevance_odds=_log_odds(scores, "relevance") if info.kind == "rerank" else None,
    )  # fmt: skip


async def examine_unknown(engine: Engine, prompts: PromptSet | None = None) -> None:
    """Puts the short form to a model without a record, and keeps the outcome, so that it is not asked again.

    Asks nothing of nano, which is for its own world, nor of a server that needs several requests for the labels of one
    prompt. A model that does not answer is left alone: scoring says so.
    """
    if not heeded():
        return
    with suppress(RagguardError):
        info = await engine.info()
        given = prompts or load_prompts(info.prompts)
        if given.name == "nano" or info.label_requests > 1 or known_record(info, given):
            return
        # A reranker is cheap to ask, and its scores mean nothing before the whole examination.
        record = await examine(engine, given, brief=info.kind != "rerank")
        keep_record(record, record_file(info, given))
        if record.failed:
            NOTICES.once(
                f"short examination: {info.fingerprint}",
                f"{record.remark}: its numbers by label may mean nothing. `ragguard doctor ENGINE --exam` examines it, "
                f"and what it fails in is then not used ({BRIEF_PROMPTS} prompts asked; {SWITCH}=off: none)",
            )


async def repeated(engine: Engine, prompts: PromptSet) -> dict[str, float]:
    """Returns `ExamRecord.spread`: twenty questions, each asked `TIMES` times one after the other. The engine must have
    no cache of its own. To be called before the examination, so that a server has not seen the questions either."""
    models = Models(engine, engine, EngineEntailer(engine, prompts), PRIORITY)
    found: dict[str, float] = {}
    cold: list[float] = []
    for probe, ask in (("abstention", abstention), ("relevance", relevance)):
        if probe not in prompts.templates:
            continue
        asked = [ask(prompts, one.question, one.near) for one in exam_cases().questions[-REPEATED // 2 :]]
        rounds = [await models.respond(asked) for _ in range(TIMES)]
        table = np.array(
            [[_number((probe, "near", 0), answer, {}) for answer in answers] for answers in rounds]
        )
        found[probe] = round(float(np.sqrt(table.var(axis=0, ddof=1).mean())), 6)
        cold += np.abs(table[0] - table[1:].mean(axis=0)).tolist()
    return found | {"cold": round(float(np.mean(cold)), 6)}


def _ask_labels(
    asked: dict[Key, Question], prompts: PromptSet, at: int, one: ExamQuestion, case: str
) -> None:
    passage = getattr(one, case)
    if "abstention" in prompts.templates:
        asked["abstention", case, at] = abstention(prompts, one.question, passage)
    asked["relevance", case, at] = relevance(prompts, one.question, passage)


def _questions(prompts: PromptSet, *, brief: bool) -> dict[Key, Question]:
    """Returns the questions of a form. What decides no verdict, or is told by few cases, is asked of every second
    question: written answers, passages on the subject without the answer, grades, second hops."""
    cases, asked = exam_cases(), dict[Key, Question]()
    if brief:
        for at, one in enumerate(cases.questions[: BRIEF_CASES // 2]):
            for case in ("gold", "partial" if at % 2 else "near"):
                _ask_labels(asked, prompts, at, one, case)
        return asked
    if "answer" not in prompts.templates:  # a reranker is asked how relevant passages are, and nothing else
        for at, one in enumerate(cases.questions):
            for case in ("gold", "partial", *_WITHOUT):
                _ask_labels(asked, prompts, at, one, case)
        return asked
    for at, one in enumerate(cases.questions):
        second = at % 2 == 0
        for case in _GRADES:
            passage = getattr(one, case)
            if case == "gold" or (case in _WITHOUT and (case == "near" or second)):
                _ask_labels(asked, prompts, at, one, case)
            if case == "partial":
                asked["relevance", case, at] = relevance(prompts, one.question, passage)
            if second:
                asked["grades", case, at] = grade(prompts, one.question, passage)
            if "query" in prompts.templates:
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


async def _answer(
    engine: Engine, prompts: PromptSet, asked: Mapping[Key, Question], tell: Tell
) -> tuple[dict[Key, Any], dict[str, str]]:
    """Returns the answers, and the reasons for which probes have none. A few questions are asked at a time; a probe
    whose question fails is asked no more."""
    ask = Asker(Models(engine, engine, EngineEntailer(engine, prompts), PRIORITY))
    answers: dict[Key, Any] = {}
    faults: dict[str, RagguardError] = {}
    # By the number of the question, so that questions about one passage are read together.
    keys = sorted(asked, key=lambda key: (key[2], key[1]))
    for start in range(0, len(keys), _AT_ONCE):
        few = [key for key in keys[start : start + _AT_ONCE] if key[0] not in faults]
        for key, answer in zip(few, await ask([asked[key] for key in few]), strict=True):
            if not isinstance(answer, RagguardError):
                answers[key] = answer
            elif isinstance(answer, _OF_THE_PROBE) and {*faults, key[0]} != {probe for probe, *_ in asked}:
                faults[key[0]] = answer
            else:
                raise answer
        tell(len(answers), len(asked))
    # A part of the cases would be another examination.
    kept = {key: answer for key, answer in answers.items() if key[0] not in faults}
    return kept, {probe: str(fault) for probe, fault in faults.items()}


def _number(key: Key, answer: Any, answers: Mapping[Key, Any]) -> float:
    """Returns what an answer says as a number: a probability, a log-probability, a grade, or whether it is right."""
    probe, case, at = key
    if probe == "abstention":
        return float(answer.p[0])
    if probe == "relevance":
        return float(answer.p[0] / max(sum(answer.p), 1e-300))
    if probe == "grades":
        return float(np.dot(answer.p, range(1, len(answer.p) + 1)) / max(sum(answer.p), 1e-300))
    if probe == "query_gain":
        return query_gain(answer.logprobs, answers[probe, "alone", at].logprobs)
    if probe == "likelihood":
        return mean_logprob([answer.logprobs])
    if probe == "entailment":
        return float(np.argmax(answer.p) == (0 if case == "same" else 2))
    cases = exam_cases()
    of = cases.questions[at] if case == "gold" else cases.two_hop[::2][at - len(cases.questions)]
    return float(f" {normalise(of.answer)} " in f" {normalise(answer.samples[0].text)} ")


def _figures(numbers: Mapping[Key, float], *, brief: bool = False) -> dict[str, float]:
    """Returns the figures that the answers give; nan where nothing was asked."""
    of = partial(_of, numbers)
    if brief:
        wrong = "near", "partial"
        return {
            "abstention": _auc(of("abstention", *wrong), of("abstention", "gold")),
            "relevance": _auc(of("relevance", "gold"), of("relevance", *wrong)),
        }
    graded = [(number, float(_GRADES[key[1]])) for key, number in numbers.items() if key[0] == "grades"]
    return {
        "abstention": _auc(of("abstention", *_WITHOUT), of("abstention", "gold")),
        "relevance": _auc(of("relevance", "gold"), of("relevance", *_WITHOUT)),
        "query_gain": _auc(of("query_gain", "gold"), of("query_gain", *_WITHOUT)),
        "likelihood": _auc(of("likelihood", "gold"), of("likelihood", *_MISLEADING)),
        "grades": _spearman(graded),
        "entailment": _share(of("entailment", "same", "wrong")),
        "relevance_partial": _auc(of("relevance", "gold"), of("relevance", "partial")),
        "partial": _auc(of("query_gain", "gold"), of("query_gain", "partial")),
        "right": _share(of("right", "gold")),
        "right_two_hop": _share(of("right", "two_hop")),
        "abstains": _share([p >= 0.5 for p in of("abstention", *_WITHOUT)]),
    }


def _interval(figure: float, numbers: Mapping[Key, float], name: str) -> list[float]:
    """Returns the 95 % interval of an area under the ROC curve over other cases like these (Hanley and McNeil 1982)."""
    probe, *kinds = _AREAS[name]
    good, bad = len(_of(numbers, probe, "gold")), len(_of(numbers, probe, *kinds))
    # An area of 1 over few cases may come from a lower one: half a case short of it.
    area = min(max(figure, 0.5 / min(good, bad)), 1 - 0.5 / min(good, bad))
    both_good, both_bad = area / (2 - area), 2 * area**2 / (1 + area)
    spread = area * (1 - area) + (good - 1) * (both_good - area**2) + (bad - 1) * (both_bad - area**2)
    reach = 1.96 * (spread / (good * bad)) ** 0.5
    return [round(max(0.0, area - reach), 4), round(min(1.0, area + reach), 4)]


def _of(numbers: Mapping[Key, float], probe: str, *cases: str) -> list[float]:
    """Returns the numbers of a probe about passages of these kinds, by question."""
    return [numbers[key] for case in cases for key in sorted(numbers) if key[:2] == (probe, case)]


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
    return float(np.asarray(np.corrcoef([arrays.ranks(row) for row in table]))[0, 1])


def _log_odds(numbers: Mapping[Key, float], probe: str) -> list[float] | None:
    """Fits the log-odds of an answering passage by the number of a probe, both kinds weighted alike, so that a half
    means that neither is likelier; a small penalty keeps the slope finite where the numbers separate the kinds."""
    good, bad = _of(numbers, probe, "gold"), _of(numbers, probe, *_WITHOUT)
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
    return [round(float(number), 4) for number in beta]
