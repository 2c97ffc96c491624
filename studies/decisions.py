"""One model as a judge, asked in three ways over HTTP: by labels, by decision questions and by samples.

nano judges passages of its harder world; any other engine judges prose: that of the examination, and passages about
what everybody knows. The server is one of our own (`judge_server`), so that all three have the same model.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple, cast

import numpy as np

from ragguard.analysis.tables import Cell, Table
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.engines.engine import layers_of
from ragguard.engines.local.local_engine import LocalEngine
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.engines.token_model import ProfiledModel
from ragguard.errors import InvalidInput, LowLabelMass
from ragguard.lab.validation.contexts import Progress, silent
from ragguard.metrics.agreement import auc
from ragguard.metrics.arrays import Booleans, Floats, Integers
from ragguard.scorers.asker import Models
from ragguard.scorers.exam.cases import exam_cases
from ragguard.scorers.probes import abstention, answerability, grade, read_relevance, relevance
from ragguard.scorers.question import LabelAnswer, LabelQuestion
from studies.hard_world import hard_cases
from studies.intervals import with_interval
from studies.judge_server import Face, JudgeServer, distinct
from studies.likelihood import known_questions

FACES: tuple[Face, ...] = ("labels", "decisions", "samples")
REPEATS, BINS = 3, 10
"""How often relevance is asked, and the bins of the calibration error, of equal width."""
_KINDS = "gold", "partial", "near", "other"
_PATIENCE_S = 3600.0


class Judged(NamedTuple):
    """A passage to judge."""

    question: str
    text: str
    relevant: bool


@dataclass(frozen=True, slots=True)
class Way:
    """The answers and the costs of one way of asking."""

    p: Floats
    """The relevance of each passage in each repeat; nan where the model says something else than a label."""
    costs: tuple[tuple[Cell, ...], ...]
    """The cost of one question a passage, and of three."""


async def study(
    engine: Engine,
    *,
    questions: int = 40,
    seed: int = 0,
    progress: Progress = silent,
    judge: Engine | None = None,
) -> list[Table]:
    """Makes the tables; `judge` has no part in it."""
    *_, innermost = layers_of(engine)
    bare = innermost.wrapped
    if not isinstance(bare, LocalEngine):
        raise InvalidInput(
            "engine", (await engine.info()).model, "a model in this process: nano, smol, hf: or gguf:"
        )
    words = (await engine.info()).prompts
    passages = world_passages(questions, seed) if words == "nano" else prose_passages(questions)
    ways = {face: await asked(bare, face, words, passages, progress) for face in FACES}
    truth = np.array([one.relevant for one in passages])
    owners = np.unique([one.question for one in passages], return_inverse=True)[1]
    name = (await engine.info()).model
    return [_quality(ways, truth, owners, seed, name), _costs(ways, name)]


def world_passages(questions: int, seed: int) -> list[Judged]:
    """Returns passages of the harder world, without those of which nobody can tell whether they answer."""
    return [
        Judged(case.question, passage.text, passage.metadata["kind"] == "gold")
        for case in hard_cases(questions, seed)
        for passage in case.pool()
        if passage.metadata["kind"] not in ("outdated", "partial")
    ]


def prose_passages(questions: int) -> list[Judged]:
    """Returns for each question a passage that answers, one about its subject alone, and one or two about others."""
    listed = [one for pair in zip(exam_cases().questions, known_questions(), strict=True) for one in pair]
    return [
        Judged(one.question, text, kind == "gold")
        for one in listed[:questions]
        for kind in _KINDS
        if (text := getattr(one, kind))
    ]


async def asked(
    bare: LocalEngine, face: Face, words: str, passages: Sequence[Judged], progress: Progress
) -> Way:
    """Asks about all passages in one way: all questions once, then relevance alone, several times."""
    server = JudgeServer(bare, face, words)
    prompts = load_prompts("decisions" if face == "decisions" else words)
    reader = [abstention(load_prompts(words), one.question, one.text).prompt for one in passages]
    model = await bare.model()
    assert isinstance(model, ProfiledModel)
    beside = await model.model.rows(reader)
    found, costs = [], []
    try:
        for repeat in range(REPEATS + 1):
            progress(face, repeat, REPEATS + 1)
            number = 3 if repeat == 0 else 1
            client = (
                connect(server.url, timeout_s=_PATIENCE_S)
                if face != "decisions"
                else connect(f"systemone:{server.url}", timeout_s=_PATIENCE_S)
            )
            try:
                await client.info()
                server.forget()
                began = time.perf_counter()
                given = await _answers(client, prompts, passages, number)
                seconds = time.perf_counter() - began
            finally:
                await client.aclose()
            if repeat:
                found.append(given)
            if repeat < 2:
                each = np.array([
                    server.requests, server.sent, distinct(server.read),
                    distinct([*server.read, *beside]) - distinct(beside), server.written, 1000 * seconds,
                ]) / len(passages)  # fmt: skip
                costs.append((number, *each.tolist()))
    finally:
        server.close()
    return Way(np.array(found), tuple(reversed(costs)))


async def _answers(
    client: Engine, prompts: PromptSet, passages: Sequence[Judged], number: int
) -> list[float]:
    """Returns the relevance of each passage, asked for alone or with two ratings beside it."""
    models, found = Models(client, client), list[float]()
    kinds = (relevance, grade, answerability)[:number]
    for _, some in groupby(passages, key=lambda one: one.question):  # as runs are scored
        listed = list(some)
        questions = [[kind(prompts, one.question, one.text) for one in listed] for kind in kinds]
        answers = await asyncio.gather(*map(models.respond, questions))
        pairs = zip(questions[0], answers[0], strict=True)
        found += [_relevance(question, cast(LabelAnswer, answer)) for question, answer in pairs]
    return found


def _relevance(question: LabelQuestion, answer: LabelAnswer) -> float:
    try:
        return read_relevance(question, answer).value
    except LowLabelMass:
        return math.nan


def calibration_error(p: Floats, truth: Booleans) -> float:
    """Returns the expected calibration error: how far the mean probability of a bin is from its share of relevant
    passages, on average over passages."""
    bins = np.minimum((p * BINS).astype(int), BINS - 1)
    gaps = [abs(p[bins == one].sum() - truth[bins == one].sum()) for one in np.unique(bins)]
    return float(sum(gaps) / len(p))


def _quality(ways: dict[Face, Way], truth: Booleans, owners: Integers, seed: int, model: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    labels = ways["labels"].p[0]
    numbers: tuple[Callable[[Floats, Floats, Booleans], float], ...] = (
        lambda p, labels, good: auc(p, good),
        lambda p, labels, good: auc(p, good) - auc(labels, good),
        lambda p, labels, good: calibration_error(p, good),
    )
    for face, way in ways.items():
        known = ~np.isnan(way.p).any(axis=0)
        both = np.flatnonzero(known & ~np.isnan(labels))
        cells: list[Cell] = [face]
        for number in numbers if len(both) else ():
            of = partial(_over, number, way.p[0][both], labels[both], truth[both])
            cells += with_interval(of, owners[both], seed)
        cells += [None] * (
            1 + 3 * len(numbers) - len(cells)
        )  # a model that gives no verdict by labels has no number
        spread = float(np.sqrt(way.p[:, known].var(axis=0, ddof=1).mean())) if known.any() else None
        rows.append((*cells, spread, 100 * float(np.mean(~known)), int(known.sum())))
    return Table(
        "decisions-quality" if model == "nano" else "decisions-quality-prose",
        f"Relevance by {model}, asked in three ways",
        ("way", "AUC", "low", "high", "AUC − that of labels", "low", "high", "ECE", "low", "high",
         "spread over repeats", "no verdict, %", "passages"),
        tuple(rows),
        notes=(
            f"ECE: expected calibration error, {BINS} bins of equal width. Spread: standard deviation of the "
            f"probability of one passage over {REPEATS} repeats, root mean square. Intervals: the middle 95 % of draws "
            "of whole questions. No verdict: less than half of the probability, or of 20 answers, is on the labels.",
        ),
    )  # fmt: skip


def _over(
    number: Callable[[Floats, Floats, Booleans], float],
    p: Floats,
    labels: Floats,
    good: Booleans,
    rows: Integers,
) -> float:
    return number(p[rows], labels[rows], good[rows])


def _costs(ways: dict[Face, Way], model: str) -> Table:
    rows = [(face, *row) for face, way in ways.items() for row in way.costs]
    return Table(
        "decisions-costs" if model == "nano" else "decisions-costs-prose",
        f"What a passage costs {model}, asked in three ways",
        ("way", "questions", "requests", "tokens sent", "read, beginnings kept", "the same, reader asked before",
         "written", "ms"),
        tuple(row for number in (1, 3) for row in rows if row[1] == number),
        digits=1,
        notes=(
            "One question: relevance. Three: a grade and a rating besides, as coverage asks for. Tokens sent: in "
            "all requests, in a decision request its text once. Beginnings kept: equal beginnings are read once, "
            "token by token, as by a server with prefix caching. Reader asked before: how many more tokens are "
            "read if the reader was asked at the same server before whether it would abstain. ms: one question "
            "after the other, each with all its passages; the client caches nothing.",
        ),
    )  # fmt: skip
