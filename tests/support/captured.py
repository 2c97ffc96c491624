"""An intake that keeps every event, and the runs they add up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ragguard.capture.events import Event, RunEnded, RunStarted, StepAmended, StepEnded
from ragguard.capture.retrievals import WholeRun
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.storage.sqlite.store import Store


def ids(passages: Sequence[Passage]) -> list[str | None]:
    """The ids of passages, in their order."""
    return [passage.id for passage in passages]


class Captured:
    """An intake that keeps the events that capture hands on, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event | WholeRun) -> None:
        self.events += event.as_events() if isinstance(event, WholeRun) else [event]

    @property
    def runs(self) -> list[Run]:
        """The runs so far, those under way with the status "open"."""
        runs: dict[str, Run] = {}
        for event in self.events:
            if isinstance(event, RunStarted):
                runs[event.run.id] = replace(event.run, steps=[], status="open")
            elif isinstance(event, StepEnded):
                runs[event.step.run_id].steps.append(replace(event.step))
            elif isinstance(event, StepAmended):
                steps = runs[event.run_id].steps
                place = next(at for at, step in enumerate(steps) if step.id == event.step_id)
                steps[place] = event.applied_to(steps[place])
            elif isinstance(event, RunEnded):
                run = runs[event.run_id]
                run.status, run.answer = event.status, event.answer
                run.question = event.question or run.question
                run.references = run.references if event.references is None else event.references
                run.sub_questions = event.sub_questions or run.sub_questions
                run.metadata = {**run.metadata, **event.metadata}
                run.trace = event.trace or run.trace
        for run in runs.values():
            run.steps.sort(key=lambda step: step.index)
        return list(runs.values())

    @property
    def run(self) -> Run:
        """The only run."""
        (run,) = self.runs
        return run

    @property
    def step(self) -> RetrievalStep:
        """The only step of the only run."""
        (step,) = self.run.steps
        return step

    @property
    def read(self) -> list[list[str] | str]:
        """The texts that the model read of each step of the only run; "unknown" where nobody can say."""
        return [
            "unknown" if step.metadata.get("ragguard.delivered") else [one.text for one in step.passages]
            for step in self.run.steps
        ]

    @property
    def places(self) -> tuple[int | None, int, int]:
        """The only step's K, its places in the prompt, and how many passages it gave."""
        return self.step.k, self.step.places, len(self.step.passages)


class CapturedInStore(Captured):
    """An intake that writes every event into a store in memory, and the runs that are there."""

    def __init__(self) -> None:
        self.store = Store()

    def __call__(self, event: Event | WholeRun) -> None:
        self.store.record(event.as_events() if isinstance(event, WholeRun) else [event])

    @property
    def runs(self) -> list[Run]:
        """The runs so far, those under way with the status "open"."""
        return list(self.store.runs())
