"""Scored runs, as the commands that show and compare read them."""

from __future__ import annotations

import random

from ragguard.records import Passage, RetrievalStep, Run, Score, ScoredRun

NAMES = ("delta_coverage", "delta_semantic_entropy", "udcg")


def scored(number: int, udcg: float) -> ScoredRun:
    """Returns a run of one step with one score."""
    step = RetrievalStep(id=f"s{number}", run_id=f"r{number}", query="q", passages=[Passage("text")])
    run = Run(f"r{number}", f"Who is number {number}?", None, "nobody", [step], ended_ns=1)
    return ScoredRun(run, [Score("udcg", udcg, "step", run.id, step.id, scorer="utility")])


def scored_in_full(number: int) -> ScoredRun:
    """Returns a run whose text is not ASCII, with scores of its passage, its step and itself."""
    step = RetrievalStep(
        id=f"s{number}", run_id=f"r{number}", query="q", passages=[Passage("Näheres: 東京 ☃")]
    )
    run = Run(f"r{number}", f"Who founded the firm number {number}?", None, "nobody", [step], ended_ns=1)
    said = [Score(name, 0.25, "step", run.id, step.id, stderr=0.1) for name in NAMES]
    said += [Score("delta_seper_total", 0.5, "run", run.id, reference_source="answer")]
    said += [Score("utility", 0.9, "passage", run.id, step.id, position=1)]
    return ScoredRun(run, said)


def side(gain: float, seed: int = 0) -> list[ScoredRun]:
    """Returns one of two sides of a comparison: 40 runs with a UDCG of about 0.5 + `gain`."""
    noise = random.Random(seed)
    return [scored(number, 0.5 + gain + noise.uniform(-0.02, 0.02)) for number in range(40)]


def logged(
    run_id: str, *retrievals: str, query: str = "who?", name: str = "grade", got: str | None = None
) -> ScoredRun:
    """Returns a run that asked the query once for each list of letters; passages that are capitals are relevant."""
    steps, scores = [], []
    for index, letters in enumerate(retrievals):
        passages = [Passage(letter) for letter in (letters if got is None else got)]
        step = RetrievalStep(
            id=f"{run_id}-{index}", index=index, query=query, candidates=[Passage(one) for one in letters],
            passages=passages,
        )  # fmt: skip
        steps.append(step)
        for position, letter in enumerate(letters, 1):
            value = (5 if letter.isupper() else 2) if name == "grade" else (0.9 if letter.isupper() else 0.1)
            scores.append(Score(name, value, "passage", run_id, step_id=step.id, position=position))
    return ScoredRun(Run(id=run_id, question="who?", steps=steps), scores)
