"""Runs that came out in six ways, for reports."""

from __future__ import annotations

from ragguard.records import Decision, Dropped, Passage, RetrievalStep, Run, Score, ScoredRun


def outcome(number):
    """A run that came out in one of six ways: right, misled, contested, not found, dropped by a guard, not judged."""
    kind = ("right", "misled", "contested", "not_found", "dropped", "unjudged")[number % 6]
    answers = {"right": "Ada Berg", "unjudged": "Carl Dahl"}
    says = Passage("Ada Berg founded the firm.", "says", metadata={"source": "handbook.md"})
    lies = Passage("Carl Dahl founded the firm.", "lies", metadata={"source": "old/handbook.md"})
    idle = Passage("Lemons are yellow.", "idle")
    read = {"right": [says], "misled": [lies], "contested": [lies, says], "unjudged": [lies]}.get(
        kind, [idle]
    )
    step = RetrievalStep(f"s{number}", f"o{number}", query="who founded it?", passages=read, candidates=read)
    if kind == "dropped":
        step.candidates = [says, idle]
        step.decision = Decision([idle], [Dropped(says, 1, "utility -0.50 < -0.20", -0.5)], "pruned", 1.0)
    run = Run(
        f"o{number}", f"Who founded firm {number}?", ["Ada Berg"], answers.get(kind, "Carl Dahl"), [step]
    )
    scores = [
        Score("utility", -0.9 if one is idle else 0.9, "passage", run.id, step.id, position=rank)
        for rank, one in enumerate(step.candidates or read, 1)
    ]
    if kind != "unjudged":
        label = "correct" if kind == "right" else "wrong"
        scores.append(Score("answer_correct", float(kind == "right"), "run", run.id, label=label))
    return ScoredRun(run, scores)
