"""Forms of the question whether a passage answers, on passages about the same subject: by the question's likelihood and
by labels, in the prompts of the model and in plain ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ragguard.analysis.tables import Cell, Table
from ragguard.engines.base import Engine
from ragguard.engines.prompts import load_prompts
from ragguard.lab.validation.contexts import Progress
from ragguard.metrics.answers import query_gain
from ragguard.scorers.asker import Asker, Models
from ragguard.scorers.exam.cases import SAME_SUBJECT, exam_cases
from ragguard.scorers.probes import abstention, answerability, grade, query_likelihood, relevance
from ragguard.scorers.question import LabelAnswer, answered
from studies.intervals import auc_over_questions
from studies.readers.ramdocs import MixedQuestion
from studies.real.asking import bm25

_PROBES: Mapping[str, Callable[..., Any]] = {
    "query": query_likelihood, "relevance": relevance, "abstention": abstention, "answerability": answerability,
    "grade": grade,
}  # fmt: skip
_PROMPTS = "own prompts", "plain prompts"
_BY_WORDS = "BM25 of the question, no model"


class Case(NamedTuple):
    """A passage on the subject of a question, and whether it answers."""

    owner: int
    question: str
    passage: str
    answers: bool


def exam_passages() -> list[Case]:
    """Returns the examination's passages on the subjects of its questions."""
    return [
        Case(at, case.question, getattr(case, kind), kind == "gold")
        for at, case in enumerate(exam_cases().questions)
        for kind in ("gold", *SAME_SUBJECT)
    ]


def found_passages(questions: Sequence[MixedQuestion]) -> list[Case]:
    """Returns the first true and the first useless document of each question that has both."""
    return [
        Case(at, one.question, one.texts(kind)[0], kind == "correct")
        for at, one in enumerate(questions)
        if one.texts("correct") and one.texts("noise")
        for kind in ("correct", "noise")
    ]


async def forms_table(
    engine: Engine, questions: Sequence[MixedQuestion], size: int, seed: int, progress: Progress
) -> Table:
    """Returns how often a passage that answers has the larger number, by each form: in the examination and in `size`
    questions of each half of the file. Without rows if the engine's prompts have no query to be likely."""
    half = len(questions) // 2
    sets = {"examination": exam_passages()}
    halves = {"first half": questions[:half], "second half": questions[half:]}
    sets |= {name: found_passages(some)[: 2 * size] for name, some in halves.items()}
    rows: dict[str, list[Cell]] = {}
    for name, cases in (
        sets.items() if "query" in load_prompts((await engine.info()).prompts).templates else ()
    ):
        numbers = []
        for at, case in enumerate(cases):
            progress(f"forms, {name}", at, len(cases))
            words = bm25(case.question, [case.passage], [one.passage for one in cases])[0]
            numbers.append({**await _numbers(engine, case), _BY_WORDS: words})
        answers, owners = [one.answers for one in cases], [one.owner for one in cases]
        for form in numbers[0] if numbers else [*rows]:
            area = auc_over_questions([one[form] for one in numbers], answers, owners, seed)
            rows.setdefault(form, [form]).extend(area)
    named = (f"{of}{' ' * at}" for at, name in enumerate(sets) for of in (f"{name}: AUC", "low", "high"))
    counts = ", ".join(f"{len(cases)} ({name})" for name, cases in sets.items())
    return Table(
        "real-forms", "Forms of the question whether a passage answers, on passages about the same subject",
        ("form", *named), tuple(map(tuple, rows.values())),
        notes=(
            f"AUC over all pairs of a passage that answers and one that does not, of {counts} passages: the "
            "examination's on the subjects of its questions, RAMDocs' first true and first useless document of a "
            "question. Less without: the number without a passage is subtracted. Plain prompts stand in the model's "
            "chat template, too. A form is chosen by the examination and the first half.",
        ),
    )  # fmt: skip


async def _numbers(engine: Engine, case: Case) -> dict[str, float]:
    """Returns the number of each form about one passage, the larger the better."""
    asker = Asker(Models(engine, engine))
    numbers: dict[str, float] = {}
    own = (await engine.info()).prompts
    for kind, name in zip(_PROMPTS, (own, "plain"), strict=True):
        prompts = load_prompts(name)
        asked = {probe: ask(prompts, case.question, case.passage) for probe, ask in _PROBES.items()}
        asked |= {
            "alone": query_likelihood(prompts, case.question),
            "empty": relevance(prompts, case.question, ""),
        }
        replies: dict[str, Any] = {}
        for probe, question in asked.items():
            ((reply,),) = await asker.attend([partial(asker, [question])])
            replies[probe] = answered(reply)
        given, alone = replies["query"].logprobs, replies["alone"].logprobs
        numbers |= {
            f"likelihood of the question, less without, {kind}": query_gain(given, alone),
            f"likelihood of the question, {kind}": sum(given) / len(given),
            f"relevance by label, {kind}": _odds(replies["relevance"]),
            f"relevance by label, less without, {kind}": _odds(replies["relevance"]) - _odds(replies["empty"]),
            f"p(abstain) by label, {kind}, the less the better": -replies["abstention"].p[0],
            f"rating from 0 to 5, {kind}": _mean(replies["answerability"]),
            f"grade from 1 to 5, {kind}": _mean(replies["grade"]),
        }  # fmt: skip
    return numbers


def _odds(answer: LabelAnswer) -> float:
    return math.log(max(answer.p[0], 1e-12) / max(answer.p[1], 1e-12))


def _mean(answer: LabelAnswer) -> float:
    return sum(at * p for at, p in enumerate(answer.p)) / max(sum(answer.p), 1e-12)
