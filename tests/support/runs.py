"""Runs by hand, for tests of whatever keeps or scores them."""

from __future__ import annotations

from ragguard.capture.events import Event, RunEnded, RunStarted, StepEnded
from ragguard.records import Passage, RetrievalStep, Run, Score


def a_run(id: str = "r1", steps: int = 2, passages: int = 3, *, question: str = "who founded it?") -> Run:
    """An ended run; equal arguments give equal runs."""
    return Run(
        id,
        question,
        references=["Ada Berg"],
        answer="Ada Berg",
        steps=[a_step(id, index, passages) for index in range(steps)],
        metadata={"user": 7},
        name="agent",
        started_ns=1_000,
        ended_ns=9_000,
    )


def a_step(run_id: str, index: int = 0, passages: int = 3) -> RetrievalStep:
    """A step whose texts other runs share."""
    found = [
        Passage(
            f"passage {index} {number} says something", f"p{number}", 1.0 / (number + 1), {"page": number}
        )
        for number in range(passages)
    ]
    return RetrievalStep(
        f"{run_id}-s{index}", run_id, index, index, f"hop {index}", found, list(found), 2_000, 3_000
    )


def as_events(run: Run) -> list[Event]:
    """The run as capture reports it."""
    started = Run(
        run.id, run.question, run.references, None, [], "open", run.metadata, name=run.name,
        started_ns=run.started_ns,
    )  # fmt: skip
    ended = RunEnded(run.id, run.status, run.answer, ended_ns=run.ended_ns)
    return [RunStarted(started), *(StepEnded(step) for step in run.steps), ended]


def scores_of(run: Run, value: float = 0.5, *, engine: str = "m/first") -> list[Score]:
    """Returns a score for each step and one for the run."""
    made = {"engine": engine, "prompts": "default/1", "scorer": "utility", "version": "1"}
    per_step = [Score("udcg", value, "step", run.id, step.id, **made) for step in run.steps]
    return [*per_step, Score("udcg_context", value, "run", run.id, **made)]
