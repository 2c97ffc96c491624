"""Thirty labels of people beside a model's grades of the same passages: how often the corrected interval holds the mean
that people found. TREC's judgements of one task, by its assessors and by a model; no texts are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ragguard.analysis.tables import Cell, Table
from ragguard.lab.labels.items import LabelItem, in_order_of_worth
from ragguard.lab.validation.contexts import Progress
from ragguard.lab.validation.rankings import read_qrels
from ragguard.metrics.arrays import Floats
from ragguard.metrics.prediction_powered import corrected_mean

RUNS, PLACES = 200, 5
"""The runs of a draw, and the passages of each, all of one topic."""
RELEVANT = 2
"""The grade from which on a passage counts as relevant."""
_PROBABILITY = (0.03, 0.2, 0.55, 0.8, 0.95)
"""The probability of relevance that stands for each grade of the model."""


class Grades:
    """The grades of the pairs that both files have, from 0 to 4, and the topic of each."""

    def __init__(
        self, people: Mapping[str, Mapping[str, float]], model: Mapping[str, Mapping[str, float]]
    ) -> None:
        pairs = [(topic, one) for topic in people for one in people[topic] if one in model.get(topic, {})]
        self.topics = np.array([topic for topic, _ in pairs])
        self.people = np.array([people[topic][one] for topic, one in pairs])
        self.model = np.array([model[topic][one] for topic, one in pairs])


def read_grades(people: Path, model: Path) -> Grades:
    """Returns the grades of two files of judgements, by people and by a model."""
    return Grades(read_qrels([people]), read_qrels([model]))


def label_table(
    grades: Grades | None, draws: int, labels: Sequence[int], seed: int, progress: Progress
) -> Table:
    """Returns how often the interval held what people say of all passages, by judge, mean and number of labels."""
    if grades is None:
        return _table((), ())
    chance = np.random.default_rng(seed)
    judges = {
        "the model": grades.model,
        "the model's grades, shuffled": chance.permutation(grades.model),
        "one grade for all": np.full(len(grades.model), 3.0),
    }
    truths = {
        "share relevant": (grades.people >= RELEVANT).astype(np.float64),
        "mean grade, 1 to 5": grades.people + 1.0,
    }
    rows: list[tuple[Cell, ...]] = []
    done, whole = 0, len(judges) * len(truths) * len(labels)
    for judge, given in judges.items():
        for name, truth in truths.items():
            graded = name == "mean grade, 1 to 5"
            judged = given / 4 if graded else np.array(_PROBABILITY)[given.astype(int)]
            for number in labels:
                progress("labels", done, whole)
                found = np.array([
                    _draw(grades.topics, judged, truth, number, graded, (seed, at)) for at in range(draws)
                ])  # fmt: skip
                kept = found[~np.isnan(found[:, 0])]
                low, high, raw = kept.T
                goal = truth.mean()
                held = (low <= goal) & (goal <= high)
                shares = (held, low > goal, high - low, raw, truth)
                rows.append(
                    (f"{judge}: {name}", number, *(float(one.mean()) for one in shares), draws - len(kept))
                )
                done += 1
    note = (
        f"{len(grades.people):,} pairs of {len(set(grades.topics.tolist()))} topics, graded by people and by a "
        f"model; {draws:,} draws of {RUNS} runs of {PLACES} passages, labelled as `ragguard label` chooses. The "
        f"truth is the mean over all pairs. Relevant: grade {RELEVANT} or more."
    )
    return _table(rows, (note,))


def _table(rows: Sequence[tuple[Cell, ...]], notes: tuple[str, ...]) -> Table:
    return Table(
        "real-labels", "Labels of people that correct a judge's mean (TREC RAG 2025)",
        ("judge: mean", "labels", "interval holds", "too high", "width", "by the judge", "by people", "refused draws"),
        tuple(rows), notes=notes,
    )  # fmt: skip


def _draw(
    topics: np.ndarray, judged: Floats, truth: Floats, number: int, graded: bool, seed: tuple[int, int]
) -> tuple[float, float, float]:
    """Returns the ends of the corrected interval and the judge's mean of one draw; nan if all labels are the same."""
    chance = np.random.default_rng(seed)
    runs = []
    for topic in np.unique(topics):
        rows = chance.permutation(np.flatnonzero(topics == topic))
        runs += [rows[at : at + PLACES] for at in range(0, len(rows) - PLACES + 1, PLACES)]
    taken = np.concatenate([runs[at] for at in chance.permutation(len(runs))[:RUNS]])
    kind = "grade" if graded else "relevance"
    items = [
        LabelItem((kind, str(at), "", 1), "", "", float(judged[row]), "judge") for at, row in enumerate(taken)
    ]
    labelled = np.full(len(taken), np.nan)
    for item in in_order_of_worth(items, number, seed=seed[1]):
        at = int(item.place[1])
        labelled[at] = truth[taken[at]]
    if np.ptp(labelled[~np.isnan(labelled)]) < 1e-9:
        return (float("nan"),) * 3
    mean = corrected_mean(
        [item.judged_label for item in items], labelled, runs=np.arange(len(taken)) // PLACES,
        strata=[item.stratum for item in items], range=(1, 5) if graded else (0, 1),
    )  # fmt: skip
    return mean.low, mean.high, mean.raw
