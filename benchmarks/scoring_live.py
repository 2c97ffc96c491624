"""A part of `scoring.py`: what scoring steps as they end asks beside scoring runs at their end, and how soon.

Both ways have the cache that every engine of a RagGuard has. Steps of one turn are one wave. The delay is that of a
whole RagGuard whose engine has nothing else to do: from the end of a step until its utilities are in the store and at
the sinks, beside one batched request for the same questions to an engine that has seen none of them.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from ragguard import RagGuard, world
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.engines.prompts import load_prompts
from ragguard.records import RetrievalStep, Run, Score, ScoredRun
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.probes import abstention, relevance

TARGETS = {"prompts": 1.05, "requests": 2.0, "delay": 1.5}


def figures(runs: Sequence[Run], metered: Callable[[], Any]) -> dict[str, Any]:
    """All figures of live scoring; `metered` makes a counting engine that has seen nothing."""
    return {
        "delay": delay(runs[: max(4, len(runs) // 10)], metered),
        "two hops": asyncio.run(count(runs, metered)),
        "six hops": asyncio.run(count(longer_runs(max(3, len(runs) // 10)), metered)),
        "targets": TARGETS,
    }


def longer_runs(n: int) -> list[Run]:
    """Runs of six hops: two that are needed, four that bring nothing new."""
    cases = world.cases(n, seed=3, hops=2)
    return [world.make_run(case, seed=at, useless_steps=4) for at, case in enumerate(cases)]


async def count(runs: Sequence[Run], metered: Callable[[], Any]) -> dict[str, Any]:
    """Requests, prompts and prompt tokens a run: scored at its end, and as its steps end."""
    sums = {"run": [0, 0, 0], "step": [0, 0, 0]}
    apart = 0.0
    for run in runs:
        results = []
        for when, total in sums.items():
            meter = metered()
            pipeline = ScoringPipeline(connect(meter))
            if when == "step":
                await _as_steps_end(pipeline, run)
            results.append(
                {one.key: one.value for one in await pipeline.results(run) if isinstance(one, Score)}
            )
            for at, amount in enumerate(meter.sent):
                total[at] += amount
        at_end, before = results
        apart = max([apart, *(abs(at_end[key] - before[key]) for key in at_end | before)])
    names = ("requests", "prompts", "prompt_tokens")
    return {
        "runs": len(runs),
        "steps": sum(len(run.steps) for run in runs),
        "per_run": {
            when: {name: round(amount / len(runs), 2) for name, amount in zip(names, total, strict=True)}
            for when, total in sums.items()
        },
        "step_over_run": {
            name: round(after / before, 4)
            for name, before, after in zip(names, sums["run"], sums["step"], strict=True)
        },
        "scores_at_the_end_differ_by": float(f"{apart:.1g}"),
    }


async def _as_steps_end(pipeline: ScoringPipeline, run: Run) -> None:
    """Scores the open run after each of its turns, as `when="step"` does."""
    ended: list[RetrievalStep] = []
    for _, turn in groupby(sorted(run.steps, key=lambda step: step.index), key=lambda step: step.turn):
        ended += turn
        stands = replace(run, steps=list(ended), answer=None, status="open")
        for kind in ("at once", "so far"):
            await pipeline.results_so_far(stands, kind)


@dataclass
class Arrivals:
    """A sink that notes when which scores of a step came."""

    came: dict[tuple[str, str], float] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    async def submit(self, scored: ScoredRun) -> None:
        now = time.perf_counter()
        with self.changed:
            for score in scored.scores:
                self.came.setdefault((score.step_id, score.name), now)
            self.changed.notify_all()

    async def aclose(self) -> None:
        pass

    def wait(self, step_id: str, name: str) -> float:
        """Returns when the first score of that name came for the step."""
        with self.changed:
            if not self.changed.wait_for(lambda: (step_id, name) in self.came, 120):
                raise TimeoutError(f"no {name} of the step came")
            return self.came[step_id, name]


def delay(runs: Sequence[Run], metered: Callable[[], Any]) -> dict[str, Any]:
    """Measures how long after a step's end its utilities are there, and how long the one request for them takes
    alone."""
    ours, alone = [], []
    sink = Arrivals()
    with (
        tempfile.TemporaryDirectory() as folder,
        RagGuard(engine=connect(metered()), store=Path(folder) / "live.db", sinks=[sink]) as rg,
    ):
        for number, run in enumerate(runs):
            with rg.run(run.question, references=run.references) as open_run:
                for step in run.steps:
                    began = time.perf_counter()
                    id = open_run.retrieved(step.query, step.passages)
                    ours.append(sink.wait(id, "utility") - began)
                    sink.wait(id, "semantic_entropy")
                    time.sleep(0.1)  # the engine is idle again
                    alone.append(asyncio.run(_one_request(connect(metered()), run, step)))
                open_run.answered(run.answer)
            rg.flush(120)
            if not number:
                ours, alone = [], []  # the first run loads the model
    return {
        "steps": len(ours),
        "utilities_after_ms": round(1000 * statistics.median(ours), 1),
        "one_request_ms": round(1000 * statistics.median(alone), 1),
        "ratio": round(statistics.median(a / b for a, b in zip(ours, alone, strict=True)), 2),
    }


async def _one_request(engine: Engine, run: Run, step: RetrievalStep) -> float:
    """The seconds that the questions about a step take in one batched request."""
    prompts = load_prompts((await engine.info()).prompts)
    abstentions = [abstention(prompts, step.query, passage.text) for passage in step.passages]
    relevances = [
        relevance(
            prompts, step.query, passage.text, question=run.question, references=tuple(run.references or ())
        )
        for passage in step.passages
    ]
    began = time.perf_counter()
    await asyncio.gather(
        *(
            engine.label_probs([one.prompt for one in questions], questions[0].labels)
            for questions in (abstentions, relevances)
        )
    )
    return time.perf_counter() - began
