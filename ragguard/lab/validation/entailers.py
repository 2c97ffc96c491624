"""Compares entailers with known relations of pairs of answers, and with one another (Dai et al. 2025, appendix B.4)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ragguard.analysis.tables import Cell, Table
from ragguard.engines.base import EngineInfo
from ragguard.engines.connect import connect, connect_entailer
from ragguard.engines.entailer import EngineEntailer, Entailer
from ragguard.engines.entailment import RELATIONS, Entailments, Pair
from ragguard.errors import InvalidInput
from ragguard.metrics import correlate
from ragguard.metrics.agreement import auc, interval
from ragguard.scorers.exam.cases import exam_cases
from ragguard.storage.files.jsonl import json_lines
from ragguard.text.language import normalise

EXAM = "exam"
"""The name of the examination's pairs, in place of a file."""
DRAWS = 2000


class WordEntailer:
    """Takes two answers to follow from each other where one holds all words of the other, one behind the other; else
    they are neutral."""

    async def entail(
        self, pairs: Sequence[Pair], *, deadline: float | None = None, priority: int = 0
    ) -> Entailments:
        """Returns one row for each pair, of zeros and ones."""
        p = np.zeros((len(pairs), len(RELATIONS)))
        for at, pair in enumerate(pairs):
            one, other = (f" {normalise(text)} " for text in (pair.premise, pair.hypothesis))
            p[at, 0 if one in other or other in one else 1] = 1.0
        return Entailments(p)

    async def info(self) -> EngineInfo:
        """Returns the description of the comparison."""
        return EngineInfo(model="words", kind="words", fingerprint="words/1")

    async def aclose(self) -> None:
        """Has nothing to release."""


def read_pairs(data: str) -> list[tuple[Pair, str]]:
    """Reads pairs of answers and how they are related from JSON lines with question, premise, hypothesis and relation;
    `exam` names the examination's."""
    if data == EXAM:
        return [
            (Pair(one.question, one.answer, other), relation)
            for one in exam_cases().questions
            for other, relation in ((one.same, RELATIONS[0]), (one.wrong, RELATIONS[2]))
        ]
    found = []
    for fields in json_lines(Path(data)):
        if (relation := fields.text("relation")) not in RELATIONS:
            raise fields.wrong("relation", relation, f"one of {', '.join(RELATIONS)}")
        pair = Pair(fields.text("question", default=""), fields.text("premise"), fields.text("hypothesis"))
        found.append((pair, relation))
    if not found:
        raise InvalidInput(data, "nothing", "at least one pair of answers with its relation")
    return found


def entailer_of(address: str) -> Entailer:
    """Returns the entailer of an address: `words`, `nli:` and that of an NLI model, or an engine that is asked."""
    if address == "words":
        return WordEntailer()
    if address.startswith("nli:"):
        return connect_entailer(address.removeprefix("nli:"))
    return EngineEntailer(connect(address))


async def compare_entailers(
    entailers: Mapping[str, Entailer], pairs: Sequence[tuple[Pair, str]]
) -> list[Table]:
    """Returns how often each entailer is right about the pairs, and how alike any two of them are; raises the error of
    one that fails."""
    truth = np.array([RELATIONS.index(relation) for _, relation in pairs])
    asked = [pair for pair, _ in pairs]
    draws = np.random.default_rng(0).integers(len(pairs), size=(DRAWS, len(pairs)))
    rows: list[tuple[Cell, ...]] = []
    entailed: dict[str, np.ndarray] = {}
    for entailer in entailers.values():
        await entailer.info()  # one that is not there ends the command before another one was asked for long
    for name, entailer in entailers.items():
        began = time.perf_counter()
        reply = await entailer.entail(asked)
        seconds = time.perf_counter() - began
        p = reply.p
        entailed[name] = p[:, 0]
        right = p.argmax(axis=1) == truth
        _, low, high = interval(right[draws].mean(axis=1))
        rows.append((
            name, float(right.mean()), low, high, auc(p[:, 0], truth == 0), auc(p[:, 2], truth == 2),
            None if reply.mass is None else float(np.mean(reply.mass)), seconds / len(pairs), len(pairs),
        ))  # fmt: skip
    columns = ("entailer", "right", "from", "to", "AUC of entailment", "AUC of contradiction", "label mass",
               "seconds a pair", "pairs")  # fmt: skip
    note = (
        "Right: the likeliest of the three relations is the pair's. Intervals: the middle 95 % of draws of pairs. "
        "AUC: how often a pair of that relation has the higher probability of it than one of another."
    )
    alike: tuple[tuple[Cell, ...], ...] = tuple(
        (one, *(correlate(entailed[one], entailed[other], "pearson", draws=2).value for other in entailed))
        for one in entailed
    )
    title, other = "Entailers on pairs whose relation is known", "Entailers beside one another"
    of_alike = f"{other}: Pearson of the probability of entailment"
    return [
        Table("entailers", title, columns, tuple(rows), source="SePer, table 9", notes=(note,)),
        Table("entailers-alike", of_alike, ("", *entailed), alike, source="SePer, figure 7"),
    ]
