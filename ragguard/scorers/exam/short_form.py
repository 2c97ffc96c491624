"""The short form of the examination, for models that nobody examined, and the one for rerankers. The whole examination
is a command (`ragguard doctor ENGINE --exam`), and its code is in the lab."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ragguard.engines.base import Engine
from ragguard.engines.entailer import EngineEntailer
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.errors import EngineProtocolError, EngineRejected, PromptTooLong, RagguardError, UnfitText
from ragguard.runtime.faults import NOTICES
from ragguard.scorers.asker import Asker, Models
from ragguard.scorers.exam.cases import SAME_SUBJECT, WITHOUT, ExamQuestion, exam_cases
from ragguard.scorers.exam.examined import log_odds_of
from ragguard.scorers.exam.figures import Key, Numbers, area, areas, fitted_log_odds, intervals, known
from ragguard.scorers.exam.record import SWITCH, ExamRecord, heeded, keep_record, known_record, record_file
from ragguard.scorers.probes import abstention, relevance
from ragguard.scorers.question import Question

Tell = Callable[[int, int], None]
"""Takes how many questions are answered, and how many there are."""
BRIEF_CASES = 24
"""The cases of the short form: twelve questions, each with the passage that answers and one without the answer, two of
three of these on the same subject. So many that a model which guesses reaches an AUC of 0.75 in 1.9 % of cases."""
BRIEF_PROMPTS = 2 * BRIEF_CASES
"""The prompts of the short form: abstention and relevance for each case."""
PRIORITY = 20
"""Examinations wait for everything else."""
_BRIEF_KINDS = "near", *SAME_SUBJECT
_AT_ONCE = 100
"""How many questions are sent at a time. After a stop, at most these are asked again."""
_OF_THE_PROBE = EngineRejected, EngineProtocolError, PromptTooLong, UnfitText
"""The errors for which a probe has a reason in place of a figure; others end the examination."""


async def examine_briefly(engine: Engine, prompts: PromptSet) -> ExamRecord:
    """Returns the record of the short form; raises the error of an engine that does not answer at all."""
    asked: dict[Key, Question] = {}
    for at, case in enumerate(exam_cases().questions[: BRIEF_CASES // 2]):
        for kind in ("gold", _BRIEF_KINDS[at % 3]):
            asked |= label_questions(prompts, at, case, kind)
    record, numbers = await sit_exam(engine, prompts, asked)
    figures = {probe: area(numbers, probe, *_BRIEF_KINDS) for probe in ("abstention", "relevance")}
    return replace(record, brief=True, figures=known(figures))


async def examine_reranker(
    engine: Engine, prompts: PromptSet, tell: Tell = lambda done, of: None
) -> ExamRecord:
    """Returns the record of a model that is asked how relevant passages are, and nothing else; its scores are no
    probabilities before."""
    asked: dict[Key, Question] = {}
    for at, case in enumerate(exam_cases().questions):
        for kind in ("gold", *SAME_SUBJECT, *WITHOUT):
            asked |= label_questions(prompts, at, case, kind)
    record, numbers = await sit_exam(engine, prompts, asked, tell)
    scores = {key: log_odds_of(p, 1 - p) for key, p in numbers.items()}
    return replace(with_areas(record, numbers, {}), relevance_odds=fitted_log_odds(scores, "relevance"))


def with_areas(record: ExamRecord, numbers: Numbers, further: Mapping[str, float]) -> ExamRecord:
    """Returns a record with the figures that are areas, their intervals, and further figures."""
    figures = known(areas(numbers) | dict(further))
    return replace(record, figures=figures, intervals=intervals(figures, numbers))


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
        examine = examine_reranker if info.kind == "rerank" else examine_briefly
        record = await examine(engine, given)
        keep_record(record, record_file(info, given))
        if record.failed:
            NOTICES.once(
                f"short examination: {info.fingerprint}",
                f"{record.remark}: its numbers by label may mean nothing. `ragguard doctor ENGINE --exam` examines it, "
                f"and what it fails in is then not used ({BRIEF_PROMPTS} prompts asked; {SWITCH}=off: none)",
            )


def label_questions(prompts: PromptSet, at: int, case: ExamQuestion, kind: str) -> dict[Key, Question]:
    """Returns the questions by label about one passage of a case: relevance, and abstention if the model reads."""
    passage = getattr(case, kind)
    asked: dict[Key, Question] = {("relevance", kind, at): relevance(prompts, case.question, passage)}
    if "abstention" in prompts.templates:
        asked["abstention", kind, at] = abstention(prompts, case.question, passage)
    return asked


def label_number(key: Key, answer: Any, answers: Mapping[Key, Any]) -> float:
    """Returns the probability that an answer by label gives: of abstention, or of relevance."""
    return float(answer.p[0] if key[0] == "abstention" else answer.p[0] / max(sum(answer.p), 1e-300))


async def sit_exam(
    engine: Engine,
    prompts: PromptSet,
    asked: Mapping[Key, Question],
    tell: Tell = lambda done, of: None,
    number: Callable[[Key, Any, Mapping[Key, Any]], float] = label_number,
) -> tuple[ExamRecord, dict[Key, float]]:
    """Returns the record of a model without figures, with the reasons for which probes have none; and what `number`
    makes of each answer beside all others. A few questions are asked at a time; a probe whose question fails is asked
    no more. Answers go through the engine's cache, so that an examination that was stopped goes on where it was."""
    began, info = time.monotonic(), await engine.info()
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
    numbers = {key: number(key, answer, kept) for key, answer in kept.items() if key[1] != "alone"}
    reasons = {probe: str(fault) for probe, fault in faults.items()}
    seconds = round(time.monotonic() - began, 1)
    return ExamRecord(
        info.model, info.fingerprint, prompts.identity, seconds=seconds, reasons=reasons
    ), numbers
