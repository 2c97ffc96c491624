"""Measures a calibrated guard where its judge errs, by the number that passages are ordered by.

    make bench-guard_calibration

Lists of eight passages of nano's held-out world, one or two of them gold: harder cases (`studies.hard_world`), the same
without facts out of date, which nobody can tell from true ones, and plain cases. The judges are nano and nano with
noise (`studies.weak_judges`); the reader is nano. A threshold is chosen on one half of the lists and tried on the
other, for many splits; for some of these nano answers from what is kept.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import record
from benchmarks.options import is_quick, parse, parser
from ragguard import world
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.guard import DistractorGuard, Judged
from ragguard.guard.calibration import choose_threshold
from ragguard.guard.policies import HelpThreshold, UtilityThreshold, choose
from ragguard.lab.validation.answering import grader
from ragguard.lab.validation.contexts import OUTCOMES, Context
from ragguard.metrics.arrays import Booleans
from ragguard.metrics.conformal import Promise
from ragguard.records import Passage
from ragguard.world import Case
from studies.hard_world import hard_cases
from studies.samples import read_contexts
from studies.weak_judges import weak_judge

SIZE = 8
SEED = 21
JUDGES = (None, 0.99, 0.95, 0.9, 0.8)
LIMITS = (0.05, 0.1) if is_quick() else (0.02, 0.05, 0.1)
ORDERS = ("help", "utility")
ANSWERED_AT, ANSWERED_SPLITS = 0.05, 10
"""The limit, and the number of splits, for which the reader answers from what is kept."""
AWAY = {"hard": ("partial", "contradiction"), "hard, nothing out of date": ("partial", "contradiction", "outdated"),
        "plain": ("contradiction",)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class List:
    """A question with its passages, and which of these are gold."""

    case: Case
    passages: Sequence[Passage]
    gold: Booleans


def lists_of(cases: Sequence[Case], without: Sequence[str]) -> list[List]:
    """Draws the passages of each case, in chance order."""
    made = []
    for case in cases:
        rng = random.Random(f"calibration {case.question}")
        pool = [one for one in case.pool() if one.metadata["kind"] not in without]
        gold = [one for one in pool if one.metadata["kind"] == "gold"]
        others = [one for one in pool if one.metadata["kind"] != "gold"]
        some = rng.sample(gold, min(len(gold), rng.randint(1, 2)))
        passages = [*some, *rng.sample(others, min(len(others), SIZE - len(some)))]
        rng.shuffle(passages)
        made.append(List(case, passages, np.array([one.metadata["kind"] == "gold" for one in passages])))
    return made


class Reader:
    """Answers from what is kept of a list, once for each set."""

    def __init__(self, engine: Engine, compares: Engine | None, lists: Sequence[List]) -> None:
        self.engine, self.compares, self.lists = engine, compares, lists
        self.known: dict[tuple[int, tuple[int, ...]], float] = {}

    async def shares(self, kept: Sequence[tuple[int, tuple[int, ...]]]) -> dict[str, float]:
        """Returns the shares of right, missing and wrong answers."""
        new = [one for one in dict.fromkeys(kept) if one not in self.known]
        contexts = [
            Context(
                id=f"{index} {places}", question_id=str(index), question=self.lists[index].case.question,
                passages=tuple(self.lists[index].passages[place] for place in places),
                references=tuple(self.lists[index].case.references),
            )
            for index, places in new
        ]  # fmt: skip
        if contexts:
            self.known.update(
                zip(new, await read_contexts(contexts, self.engine, self.compares), strict=True)
            )
        found = np.array([self.known[one] for one in kept])
        return {name: round(float(np.mean(found == value)), 4) for name, value in OUTCOMES.items()}


async def measured(
    lists: Sequence[List],
    judged: Sequence[list[Judged]],
    order: str,
    limit: float,
    splits: int,
    reader: Reader,
) -> dict[str, Any]:
    """Returns what is lost and dropped over the splits, and how the reader answers after some of them."""
    lost, dropped, answered = [], [], []
    for split in range(splits):
        shuffled = np.random.default_rng([SEED, split]).permutation(len(lists)).tolist()
        learn, test = shuffled[: len(lists) // 2], shuffled[len(lists) // 2 :]
        by_help = order == "help"
        values = [[one.p_helps if by_help else one.utility for one in judged[i]] for i in learn]
        gold = [lists[i].gold.tolist() for i in learn]
        threshold = choose_threshold(
            values, gold, Promise(limit), 1, lowest=0.0 if by_help else -1.0
        ).threshold
        policy = HelpThreshold(threshold) if by_help else UtilityThreshold(threshold)
        gone = {i: choose([policy], judged[i], 1) for i in test}
        kept = {i: np.array([n not in gone[i] for n in range(1, len(lists[i].passages) + 1)]) for i in test}
        lost.append(float(np.mean([np.mean(~kept[i][lists[i].gold]) for i in test])))
        dropped.append(float(np.mean(np.concatenate([~kept[i][~lists[i].gold] for i in test]))))
        if limit == ANSWERED_AT and split < ANSWERED_SPLITS:
            answered += [(i, tuple(np.flatnonzero(kept[i]).tolist())) for i in test]
    figures: dict[str, Any] = {
        "gold_lost": round(float(np.mean(lost)), 4),
        "stderr": round(float(np.std(lost, ddof=1) / len(lost) ** 0.5), 5),
        "distractors_dropped": round(float(np.mean(dropped)), 4),
    }
    return figures | ({"answers": await reader.shares(answered)} if answered else {})


async def measure(number: int, splits: int) -> dict[str, Any]:
    """Makes the table: world, judge, order and limit."""
    engine = connect("nano")
    compares = await grader(engine)
    table: dict[str, Any] = {}
    for name, without in AWAY.items():
        cases = world.cases(number, seed=SEED) if name == "plain" else hard_cases(number, seed=SEED)
        lists = lists_of(cases, without)
        reader = Reader(engine, compares, lists)
        everything = [(i, tuple(range(len(one.passages)))) for i, one in enumerate(lists)]
        table[name] = {"no guard": await reader.shares(everything)}
        for strength in JUDGES:
            judge = engine if strength is None else await weak_judge(engine, strength, seed=SEED)
            guard = DistractorGuard(engine, judge=judge)
            judged = [await guard.judged(one.case.question, one.passages) for one in lists]
            of_judge = table[name]["nano" if strength is None else f"AUC {strength:g}"] = {}
            for order in ORDERS:
                of_judge[order] = {
                    f"{limit:g}": await measured(lists, judged, order, limit, splits, reader)
                    for limit in LIMITS
                }
                print(name, strength, order, of_judge[order], flush=True)
    return {"lists": number, "passages": SIZE, "splits": splits, "figures": table}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--lists", type=int, default=300)
    options.add_argument("--splits", type=int, default=200)
    asked = parse(options, lists=42, splits=1)
    print(record("guard_calibration", asyncio.run(measure(asked.lists, asked.splits))))


if __name__ == "__main__":
    main()
