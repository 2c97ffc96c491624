"""Hops that were needed, by numbers that need no model, on MuSiQue and HotpotQA. What a model's numbers say of hops is
the study `credit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ragguard.analysis.tables import Cell, Table
from ragguard.text.statements.phrases import findable, mentions
from studies.credit import make_run, place_of_hops
from studies.intervals import auc_over_questions
from studies.readers.multi_hop import MultiHop
from studies.real.asking import bm25

NUMBERS = ("answer_in_context", "BM25 of the question, best passage")


def hop_table(sets: Mapping[str, Sequence[MultiHop]], seed: int) -> Table:
    """Returns how often a needed hop has the larger number than a useless one: the first needed one, the last, all."""
    rows: list[tuple[Cell, ...]] = []
    for name, questions in sets.items():
        hops = []
        for owner, question in enumerate(questions):
            run = make_run(question, seed)
            phrases = findable(run.references or ())
            for step, place in zip(run.steps, place_of_hops(run), strict=True):
                texts = [passage.text for passage in step.passages]
                stands = float(any(mentions(text, phrases) for text in texts))
                hops.append((stands, max(bm25(run.question, texts, question.paragraphs)), place, owner))
        table = np.array(hops, dtype=float).reshape(-1, 4)
        needed, owners = table[:, 2] > 0, table[:, 3]
        for column, number in enumerate(NUMBERS):
            cells: list[Cell] = []
            for place in (1, 3):
                some = (table[:, 2] == place) | ~needed
                cells += auc_over_questions(table[some, column], needed[some], owners[some], seed)[:1]
            cells += auc_over_questions(table[:, column], needed, owners, seed)
            rows.append((f"{name}: {number}", *cells, len(questions)))
    return Table(
        "real-hops", "A hop that was needed over a useless one, without a model (MuSiQue, HotpotQA)",
        ("number", "first hop: AUC", "last hop: AUC", "all hops: AUC", "low", "high", "questions"), tuple(rows),
        notes=("A hop read the paragraph of its part between two others; one more hop read three others.",),
    )  # fmt: skip
