"""Questions that their passages answer or not, and the sentences that do, without references: CLAPnq and MTRAG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ragguard.analysis.tables import Cell, Table
from ragguard.engines.base import Engine
from ragguard.lab.validation.contexts import Progress
from studies.intervals import auc_over_questions, share_over_questions
from studies.readers.answerable import JudgedPassages
from studies.real.asking import bm25, judged, query_gains

MOST = 2
"""The most passages of a question that are read."""
_BY_BM25 = "BM25 of the question, best passage"
_BY_MODEL = ("likelihood of the question", "relevance by label", "p(abstain), the less the better")


async def answerable_table(
    engine: Engine, sets: Mapping[str, Sequence[JudgedPassages]], size: int, seed: int, progress: Progress
) -> Table:
    """Returns how often passages that answer their question have the larger number than such as do not.

    BM25 is over all questions with passages, the model's numbers over `size` of each set, half of them of each kind.
    """
    rows: list[tuple[Cell, ...]] = []
    for name, questions in sets.items():
        some = [one for one in questions if one.passages]
        pool = [text for one in some for text in one.passages]
        scores = [max(bm25(one.question, one.passages[:MOST], pool)) for one in some]
        rows.append((f"{name}: {_BY_BM25}", *_auc(scores, some, seed)))
        kinds = [[one for one in some if one.answerable is kind] for kind in (True, False)]
        asked = [one for kind in kinds for one in kind[: (size + 1) // 2]]
        numbers = []
        for at, one in enumerate(asked):
            progress(f"answerable, {name}", at, len(asked))
            (said,) = await judged(engine, [(one.question, one.passages[:MOST])])
            numbers.append((said.gain, said.relevant, -said.abstains))
        for number, column in zip(_BY_MODEL, zip(*numbers, strict=True), strict=False):
            rows.append((f"{name}: {number}", *_auc(column, asked, seed)))
    return Table(
        "real-answerable", "Whether the passages answer the question (CLAPnq, MTRAG)",
        ("set: number", "AUC", "low", "high", "questions"), tuple(rows),
        notes=(
            f"AUC: how often a question that its passages answer has the larger number; up to {MOST} passages, read "
            "together. MTRAG: only the last turn is the question, and what is partly answered or underspecified "
            "counts as not answered; questions without a passage are left out.",
        ),
    )  # fmt: skip


def _auc(values: Sequence[float], questions: Sequence[JudgedPassages], seed: int) -> tuple[Cell, ...]:
    area = auc_over_questions(values, [one.answerable for one in questions], range(len(values)), seed)
    return *area, len(questions)


async def sentence_table(
    engine: Engine, questions: Sequence[JudgedPassages], size: int, seed: int, progress: Progress
) -> Table:
    """Returns how often the best sentence by each number is one that people selected, and what chance has."""
    some = [one for one in questions if one.selected and len(one.sentences) > 1]
    best: dict[str, list[int]] = {
        "the first sentence": [0] * len(some),
        "BM25 of the question": [_best(bm25(one.question, one.sentences)) for one in some],
    }
    gains: list[list[float]] = []
    for at, one in enumerate(some[:size]):
        progress("sentences", at, min(size, len(some)))
        gains.append(await query_gains(engine, [(one.question, [text]) for text in one.sentences]))
    if gains and not any(np.isnan(one).any() for one in gains):
        best["likelihood of the question"] = [_best(one) for one in gains]
    rows: list[tuple[Cell, ...]] = [
        _row("chance", [len(one.selected) / len(one.sentences) for one in some], seed)
    ]
    for number, places in best.items():
        held = [float(at in one.selected) for at, one in zip(places, some, strict=False)]
        rows.append(_row(number, held, seed))
    return Table(
        "real-sentences", "The best sentence of a passage is one that people selected (CLAPnq)",
        ("by", "share", "low", "high", "questions"), tuple(rows),
    )  # fmt: skip


def _best(values: Sequence[float]) -> int:
    return int(np.argmax(values))


def _row(name: str, values: Sequence[float], seed: int) -> tuple[Cell, ...]:
    share = share_over_questions(values, np.ones(len(values)), range(len(values)), seed)
    return name, *share, len(values)
