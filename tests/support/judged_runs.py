"""Scored runs of which the right label of each passage is known, and a judge that leans to yes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ragguard.lab.labels.items import LabelItem
from ragguard.metrics.distraction import udcg, utility
from ragguard.records import Passage, RetrievalStep, Run, Score, ScoredRun

JUDGE = "judge/1"


def judged_runs(
    count: int = 60, places: int = 4, seed: int = 0, prefix: str = "r", rate: float = 0.4
) -> tuple[list[ScoredRun], np.ndarray]:
    """Returns the runs, and which passages are relevant, (runs, places)."""
    random = np.random.default_rng(seed)
    right = random.random((count, places)) < rate
    odds = 2.5 * (right - 0.5) + random.standard_normal(right.shape) + 1.0
    p, abstains = 1 / (1 + np.exp(-odds)), random.random(right.shape)
    runs = []
    for at in range(count):
        name = f"{prefix}{at}"
        passages = [Passage(f"passage {rank} of {name}") for rank in range(places)]
        step = RetrievalStep(id=f"s-{name}", run_id=name, query=f"query {name}", passages=passages, k=places)
        u = np.asarray(utility((p[at] >= 0.5).astype(float), abstains[at]))
        scores = [Score("udcg", float(udcg(u)), "step", name, step.id, engine=JUDGE, metadata={"k": places})]
        for score, values in (("p_relevant", p[at]), ("p_abstain", abstains[at]), ("utility", u)):
            scores += of_passages(score, values, step)
        runs.append(ScoredRun(Run(id=name, question=f"question {at}?", steps=[step]), scores))
    return runs, right


def of_passages(name: str, values: Iterable[float], step: RetrievalStep) -> list[Score]:
    """Returns the judge's scores of a step's passages, in their order."""
    made = {"engine": JUDGE, "prompts": "default/1"}
    return [
        Score(name, float(value), "passage", step.run_id, step.id, position=rank, **made)
        for rank, value in enumerate(values, 1)
    ]


def graded_runs(count: int = 60, places: int = 4, seed: int = 0) -> tuple[list[ScoredRun], np.ndarray]:
    """Returns runs with the grades of a judge that grades too high, and the right grades, (runs, places)."""
    runs, _ = judged_runs(count, places, seed)
    random = np.random.default_rng(seed)
    right = random.integers(1, 6, (count, places))
    given = np.clip(right + random.integers(0, 3, right.shape), 1, 5)
    for one, grades in zip(runs, given, strict=True):
        one.scores += of_passages("grade", grades, one.run.steps[0])
    return runs, right


def right_label(item: LabelItem, right: np.ndarray) -> float:
    """Returns the right label of an item."""
    _, run, _, position = item.place
    return float(right[int(run.lstrip("abr")), position - 1])


def fill_in(path: Path, right: np.ndarray, by: str = "ann", prefix: str = "") -> None:
    """Fills in the labels of a sheet."""
    lines = []
    for line in path.read_text().splitlines():
        data = json.loads(line)
        if data["run"].startswith(prefix):
            found = right[int(data["run"].lstrip("abr")), data["position"] - 1]
            data["label"] = int(found) if data["kind"] == "grade" else bool(found)
            data["by"] = by
        lines.append(json.dumps(data))
    path.write_text("\n".join(lines) + "\n")
